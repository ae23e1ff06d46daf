//! What is known of the samples of a source, and who says so: their metadata columns and their payload fields.

use std::sync::Arc;

use super::layout::{Layout, Learned};
use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::payload::PayloadSchema;

/// What is known about payloads before the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadOrigin {
    /// Nothing, or what the first sample gave since.
    FirstSample,
    /// The fields that the source declares.
    Source,
    /// What the cache holds that the samples are appended to.
    Cache,
}

/// What is known of the samples of a source.
pub(super) struct Known {
    /// The columns, and what was learned of each; none before they are declared or taken from the first sample.
    pub columns: Option<(Arc<Layout>, Learned)>,
    /// Fields of the payloads; none for plain bytes.
    pub payload: Option<PayloadSchema>,
    /// Who says what the payloads are.
    pub payload_origin: PayloadOrigin,
}

impl Known {
    /// What is known before the first sample.
    pub fn new(
        layout: Option<Layout>,
        payload: Option<PayloadSchema>,
        payload_origin: PayloadOrigin,
    ) -> Self {
        Self {
            columns: layout.map(with_learned),
            payload,
            payload_origin,
        }
    }

    /// Column names in ascending order.
    pub fn names(&self) -> Option<&[String]> {
        let columns = self.columns.as_ref();
        columns.map(|(layout, _)| layout.names.as_slice())
    }

    /// Sets the columns from the keys of the first sample, in any order.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for a reserved or repeated name, or too many.
    pub fn set_columns(&mut self, names: Vec<String>) -> Result<()> {
        if self.columns.is_some() {
            return Err(CacheError::internal(
                "the columns of a source were set twice",
            ));
        }
        self.columns = Some(with_learned(Layout::inferred(names)?));
        Ok(())
    }

    /// Sets the payload fields as sample `row` shows them, which must be the first.
    ///
    /// # Errors
    /// [`CacheError::Sample`] if the cache that is appended to holds plain bytes. A defect of the caller: fields that are
    /// set already, or after the first sample.
    pub fn set_payload(&mut self, schema: PayloadSchema, row: u64) -> Result<()> {
        if self.payload.is_none() && self.payload_origin == PayloadOrigin::Cache {
            let names = schema.fields().iter().map(|field| field.name.as_str());
            let names: Vec<&str> = names.collect();
            let fault = format!(
                "payload fields `{}` where the cache that is appended to holds plain bytes",
                names.join("`, `")
            );
            return Err(CacheError::Sample { row, fault });
        }
        if self.payload.is_some() || row > 0 {
            return Err(CacheError::internal(
                "the payload fields of a source were set twice or too late",
            ));
        }
        self.payload = Some(schema);
        Ok(())
    }

    /// The values of sample `row` in column order; those of a first sample set the columns.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for other names than the columns have.
    pub fn in_order<'a>(
        &mut self,
        values: &[(&str, Value<'a>)],
        row: u64,
    ) -> Result<Vec<Value<'a>>> {
        if self.columns.is_none() {
            self.set_columns(values.iter().map(|(name, _)| (*name).to_owned()).collect())?;
        }
        let names = self.names().unwrap_or_default();
        let mut sorted = Vec::with_capacity(names.len());
        for name in names {
            let value = values.iter().find(|(key, _)| key == name);
            sorted.extend(value.map(|(_, value)| *value));
        }
        if sorted.len() != values.len() || sorted.len() != names.len() {
            let found: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            return Err(self.key_fault(row, &found));
        }
        Ok(sorted)
    }

    /// The error for sample `row`, which has other keys than the columns: names one missing or unexpected key.
    pub fn key_fault(&self, row: u64, found: &[&str]) -> CacheError {
        match &self.columns {
            Some((layout, _)) => layout.key_fault(row, found),
            None => CacheError::internal("keys were compared before there were columns"),
        }
    }
}

fn with_learned(layout: Layout) -> (Arc<Layout>, Learned) {
    let learned = Learned::new(&layout);
    (Arc::new(layout), learned)
}
