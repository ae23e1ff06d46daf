//! A source pulled in the calling thread: item by item to the writer, signals noticed between them.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::fault::Fault;
use super::ingest::{Ingest, Taken};
use super::signals::{Stopped, stoppable};
use super::source::Source;
use crate::writer::CacheWriter;
use crate::writer::profiler::{Profile, Stage};
use crate::writer::progress::Progress;

/// Feeds the whole source to the writer. With `timed`, the time of this thread is counted.
pub fn pull<'py>(
    py: Python<'py>,
    source: &Source<'py>,
    writer: &mut CacheWriter,
    (profile, timed): (&Profile, bool),
    progress: &mut Progress,
) -> std::result::Result<(), Fault> {
    let mut ingest = Ingest::new(source, writer)?;
    let mut items = source.object.try_iter()?;
    let mut clock = Clock::new(timed);
    loop {
        let next = items.next();
        clock.lap(Stage::SourceWait);
        let Some(item) = next else {
            clock.flush(profile);
            // A source written in C never gives Python the chance to notice a signal.
            return py.check_signals().map_err(Fault::Caller);
        };
        let taken = ingest.take(writer, &item?)?;
        clock.lap(Stage::Ingest);
        if matches!(taken, Taken::Sample) {
            continue;
        }
        clock.flush(profile);
        py.check_signals().map_err(Fault::Caller)?;
        let name = source.name.as_str();
        stoppable(py, |interrupt| match taken {
            Taken::Table(table) => table.run(writer, &mut || {
                progress.update(name, profile);
                interrupt()
            }),
            Taken::Sample | Taken::Full => writer.submit(interrupt),
        })?;
        progress.update(name, profile);
        clock.restart();
    }
}

impl From<Stopped> for Fault {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Signal(exception) => Self::Caller(exception),
            Stopped::Failed(error) => Self::Core(error),
        }
    }
}

/// Splits the time of this thread between the source and us, if anybody wants to know.
struct Clock {
    last: Option<Instant>,
    waited: Duration,
    ingested: Duration,
}

impl Clock {
    fn new(enabled: bool) -> Self {
        Self {
            last: enabled.then(Instant::now),
            waited: Duration::ZERO,
            ingested: Duration::ZERO,
        }
    }

    /// Counts the time since the last call to `stage`.
    fn lap(&mut self, stage: Stage) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            let spent = now.duration_since(*last);
            *last = now;
            match stage {
                Stage::SourceWait => self.waited += spent,
                _ => self.ingested += spent,
            }
        }
    }

    /// Leaves out the time since the last call.
    fn restart(&mut self) {
        if let Some(last) = &mut self.last {
            *last = Instant::now();
        }
    }

    /// Hands the times of a chunk over.
    fn flush(&mut self, profile: &Profile) {
        if self.last.is_some() {
            profile.add(Stage::SourceWait, std::mem::take(&mut self.waited));
            profile.add(Stage::Ingest, std::mem::take(&mut self.ingested));
        }
    }
}
