//! `CachedDataset` as Python sees it; the class of the same name in `dataset_rt.dataset` wraps it.

use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::{ArrowTable, import};
use super::batch::NativeBatch;
use super::batches::BatchIterator;
use super::buffer::{Numbers, numbers};
use super::errors::to_pyerr;
use super::gather::gather;
use super::iterator::SampleIterator;
use super::profile;
use super::sample::SampleBuilder;
use super::signals::detached;
use super::{options, state};
use crate::dataset::{
    ActiveRows, BatchOptions, Dataset, Ranks, SampleOptions, SavedState, Share, Weights,
};
use crate::error::CacheError;
use crate::reader::Selection;
use crate::store::generations::Wanted;

/// Name, type and shape of a payload field.
type Field = (String, String, Vec<Option<u64>>);

/// Open caches and the state of their sampling.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct CachedDataset {
    inner: Dataset,
    builder: Arc<SampleBuilder>,
    /// Whole payloads.
    whole: Selection,
}

impl CachedDataset {
    /// The dataset itself.
    pub(super) fn dataset(&self) -> &Dataset {
        &self.inner
    }

    fn start_samples(
        &self,
        py: Python<'_>,
        options: SampleOptions,
        is_watched: bool,
    ) -> PyResult<SampleIterator> {
        let stream = py.detach(|| self.inner.samples(options));
        let stream = stream.map_err(to_pyerr)?;
        let builder = Arc::clone(&self.builder);
        Ok(SampleIterator::new(stream, builder, is_watched))
    }

    fn wrap(py: Python<'_>, inner: Dataset) -> PyResult<Self> {
        let schema = inner.schema().map_err(to_pyerr)?;
        let payload = inner.payload().map_err(to_pyerr)?;
        let builder = Arc::new(SampleBuilder::new(py, &schema, payload.as_ref())?);
        Ok(Self {
            inner,
            builder,
            whole: Selection::all(payload),
        })
    }

    /// Whole payloads, or those fields of them that `fields` names; the writer of the list has checked the names.
    fn selection(&self, fields: Option<Vec<String>>) -> PyResult<Selection> {
        let Some(fields) = fields else {
            return Ok(self.whole.clone());
        };
        self.inner
            .selection(|name| fields.iter().any(|field| field == name))
            .map_err(to_pyerr)
    }
}

#[pymethods]
impl CachedDataset {
    /// Opens caches, each in the generation given, or else the newest; `reader_config` is the JSON form of a `ReaderConfig`.
    #[new]
    #[pyo3(signature = (paths, reader_config, generations = None))]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        reader_config: &str,
        generations: Option<Vec<Option<u64>>>,
    ) -> PyResult<Self> {
        let (options, newest) = options::parse(reader_config)?;
        let generations = generations.unwrap_or_default().into_iter();
        let wanted = generations.map(|number| number.map_or(newest, Wanted::Number));
        let wanted = wanted.chain(iter::repeat(newest));
        let caches: Vec<_> = paths.into_iter().zip(wanted).collect();
        let inner = detached(py, |interrupt| {
            Dataset::open_stoppable(&caches, options, interrupt)
        })?;
        Self::wrap(py, inner)
    }

    /// The generation that is read of each cache, and why a newer one was passed over.
    fn generations(&self) -> PyResult<Vec<(u64, Option<String>)>> {
        self.inner.generations().map_err(to_pyerr)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.inner.row_count().map_err(to_pyerr)?).unwrap_or(usize::MAX))
    }

    /// Positions of an epoch, over all ranks.
    fn epoch_length(&self) -> PyResult<u64> {
        self.inner.epoch_len().map_err(to_pyerr)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<SampleIterator> {
        self.start_samples(py, SampleOptions::plain(self.inner.ranks()), true)
    }

    /// Samples of this rank, taken in blocks: those after the first `skip`, and of these every `step`-th.
    fn samples(
        &self,
        py: Python<'_>,
        remainder: &str,
        block: u64,
        skip: u64,
        step: u64,
    ) -> PyResult<SampleIterator> {
        let options = SampleOptions {
            remainder: options::remainder(remainder)?,
            block,
            share: Share { skip, step },
            ranks: self.inner.ranks(),
        };
        self.start_samples(py, options, false)
    }

    /// Batches of this rank, each made by `build` of its native parts: those after the first `skip`, and of these every `step`-th; `epochs=None` never ends.
    /// Of watched ones a consumer that starves is warned.
    #[pyo3(signature = (build, batch_size, remainder, epochs, fields = None, skip = 0, step = 1, watched = true))]
    #[expect(clippy::too_many_arguments, reason = "Python names most of them")]
    fn batches(
        &self,
        py: Python<'_>,
        build: Py<PyAny>,
        batch_size: &Bound<'_, PyAny>,
        remainder: &str,
        epochs: Option<&Bound<'_, PyAny>>,
        fields: Option<Vec<String>>,
        skip: u64,
        step: u64,
        watched: bool,
    ) -> PyResult<BatchIterator> {
        let Ranks { rank, world_size } = self.inner.ranks();
        let options = BatchOptions {
            batch_size: options::natural("batch_size", batch_size, 1..=u64::MAX)?,
            remainder: options::remainder(remainder)?,
            epochs: epochs
                .map(|epochs| options::natural("epochs", epochs, 1..=u64::MAX))
                .transpose()?,
            share: Share { skip, step },
            rank,
            world_size,
        };
        let selection = self.selection(fields)?;
        let stream = py
            .detach(|| self.inner.batches(options, selection))
            .map_err(to_pyerr)?;
        Ok(BatchIterator::new(stream, build, watched))
    }

    /// Samples of rows, given as a contiguous array of i64 or u64, into new memory or into `out`, one writable buffer per
    /// field.
    #[pyo3(signature = (rows, fields = None, out = None))]
    fn gather(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        fields: Option<Vec<String>>,
        out: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<NativeBatch> {
        match fields {
            None => gather(py, &self.inner, &self.whole, rows, out),
            Some(_) => gather(py, &self.inner, &self.selection(fields)?, rows, out),
        }
    }

    /// Active rows (u64) of the samples that one-column tables name together.
    fn rows_of(&self, py: Python<'_>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Numbers> {
        let batches = import(&columns)?;
        py.detach(|| self.inner.rows_of(batches))
            .map(|rows| numbers(py, rows))
            .map_err(to_pyerr)
    }

    /// Names of the metadata columns, in name order.
    fn metadata_columns(&self) -> PyResult<Vec<String>> {
        let schema = self.inner.schema().map_err(to_pyerr)?;
        let columns = schema.columns().iter();
        Ok(columns.map(|column| column.name.clone()).collect())
    }

    /// Name, type and shape of each payload field, in the order of gathered columns; `None` if payloads are plain bytes.
    fn payload_fields(&self) -> PyResult<Option<Vec<Field>>> {
        let payload = self.inner.payload().map_err(to_pyerr)?;
        Ok(payload.map(|payload| {
            let fields = payload.fields().iter();
            fields
                .map(|field| (field.name.clone(), field.dtype.name(), field.shape.clone()))
                .collect()
        }))
    }

    /// The sample of one row; a negative row counts from the end.
    fn sample<'py>(&self, py: Python<'py>, row: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let row = options::whole(row)?;
        let len = self.inner.row_count().map_err(to_pyerr)?;
        let wrapped = if row < 0 {
            row.saturating_add(i128::from(len))
        } else {
            row
        };
        let position = u64::try_from(wrapped)
            .ok()
            .filter(|position| *position < len);
        let position =
            position.ok_or_else(|| to_pyerr(CacheError::OutOfRange { index: row, len }))?;
        let chunk = py
            .detach(|| self.inner.sample(position))
            .map_err(to_pyerr)?;
        let sample = chunk
            .get(0)
            .ok_or_else(|| to_pyerr(CacheError::internal("a row without a sample")))?;
        self.builder.build(py, sample)
    }

    /// The counters of this dataset in this process by name, times in seconds; `reset` begins them again.
    fn profile<'py>(&self, py: Python<'py>, reset: bool) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = py.detach(|| self.inner.profile(reset)).map_err(to_pyerr)?;
        profile::to_dict(py, &snapshot)
    }

    /// Counts as if a consumer had waited and worked for so many nanoseconds, for tests.
    fn pretend_consumer(&self, waited: u64, worked: u64, batches: u64) -> PyResult<()> {
        self.inner
            .pretend_consumer(waited, worked, batches)
            .map_err(to_pyerr)
    }

    fn set_epoch(&self, epoch: &Bound<'_, PyAny>) -> PyResult<()> {
        self.inner
            .set_epoch(options::epoch(epoch)?)
            .map_err(to_pyerr)
    }

    /// Epoch and position where the next iterator starts.
    fn next_position(&self) -> PyResult<(u32, u64)> {
        let next = self.inner.next().map_err(to_pyerr)?;
        Ok((next.epoch, next.position))
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let saved = py.detach(|| self.inner.saved_state()).map_err(to_pyerr)?;
        state::to_dict(py, &saved)
    }

    /// The state at which the next iterator starts.
    fn start_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let saved = py.detach(|| self.inner.start_state()).map_err(to_pyerr)?;
        state::to_dict(py, &saved)
    }

    fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        ignore: Vec<String>,
    ) -> PyResult<()> {
        let saved = state::from_dict(state)?;
        py.detach(|| self.inner.load_state(&saved, &ignore))
            .map_err(to_pyerr)
    }

    /// Active-row numbers (u64) at positions of an epoch.
    fn rows(
        &self,
        py: Python<'_>,
        epoch: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Numbers> {
        let (epoch, start, stop) =
            options::positions(epoch, start, stop, || self.inner.epoch_len())?;
        py.detach(|| self.inner.rows(epoch, start, stop))
            .map(|rows| numbers(py, rows))
            .map_err(to_pyerr)
    }

    /// Cache and sample numbers (u64) at positions of an epoch.
    fn order(
        &self,
        py: Python<'_>,
        epoch: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Numbers, Numbers)> {
        let (epoch, start, stop) =
            options::positions(epoch, start, stop, || self.inner.epoch_len())?;
        let (caches, samples) = py
            .detach(|| self.inner.order(epoch, start, stop))
            .map_err(to_pyerr)?;
        Ok((numbers(py, caches), numbers(py, samples)))
    }

    /// The damaged samples that were left out or replaced in this process.
    fn corrupt_samples(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let (schema, table) = py
            .detach(|| self.inner.corrupt_samples())
            .map_err(to_pyerr)?;
        Ok(ArrowTable::new(schema, vec![table]))
    }

    fn samples_metadata(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let (schema, batches) = py
            .detach(|| self.inner.samples_metadata())
            .map_err(to_pyerr)?;
        Ok(ArrowTable::new(schema, batches))
    }

    fn set_samples_metadata(&self, py: Python<'_>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let batches = import(&columns)?;
        py.detach(|| self.inner.set_samples_metadata(batches))
            .map_err(to_pyerr)
    }

    /// A view of the rows that one-column tables name together.
    fn select(&self, py: Python<'_>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let batches = import(&columns)?;
        let view = py.detach(|| self.inner.select(batches)).map_err(to_pyerr)?;
        Self::wrap(py, view)
    }

    /// Chosen rows, weights (one if all are equal; either may be `None`) and the state that a copy elsewhere continues from.
    fn parts(&self, py: Python<'_>) -> PyResult<(Option<Numbers>, Option<Numbers>, String)> {
        let (rows, weights, saved) = py.detach(|| self.inner.parts()).map_err(to_pyerr)?;
        let rows = match rows {
            ActiveRows::All => None,
            ActiveRows::Chosen(rows) => Some(numbers(py, rows.to_vec())),
        };
        let bits = match weights {
            Weights::Equal(1.0) => None,
            Weights::Equal(weight) => Some(vec![weight.to_bits()]),
            Weights::Each(weights) => Some(weights.iter().map(|weight| weight.to_bits()).collect()),
        };
        let weights = bits.map(|bits| numbers(py, bits));
        Ok((rows, weights, state::to_json(&saved)?))
    }

    /// Continues from the parts of another dataset over the same caches.
    fn restore(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        weights: Option<&Bound<'_, PyAny>>,
        state: &str,
    ) -> PyResult<()> {
        let rows = match rows {
            None => ActiveRows::All,
            Some(rows) => ActiveRows::Chosen(Arc::from(PyBuffer::<u64>::get(rows)?.to_vec(py)?)),
        };
        let weights = match weights {
            None => Weights::Equal(1.0),
            Some(weights) => {
                let bits = PyBuffer::<u64>::get(weights)?.to_vec(py)?;
                Weights::from_rows(bits.into_iter().map(f64::from_bits).collect())
            }
        };
        let saved = SavedState::parse(state).map_err(to_pyerr)?;
        py.detach(|| self.inner.restore(rows, weights, &saved))
            .map_err(to_pyerr)
    }
}

/// 128 random bits that belong to one position of an epoch.
#[pyfunction]
pub fn sample_bits(seed: u64, epoch: u32, position: u64) -> u128 {
    let words = crate::sampling::rng::sample_bits(seed, epoch, position);
    words
        .into_iter()
        .rev()
        .fold(0, |bits, word| (bits << 32) | u128::from(word))
}
