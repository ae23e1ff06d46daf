//! The threads of a cache that is made from others: one does the work, three bring its bytes to the disk, and the calling
//! one asks whether to go on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use super::failure::{Failure, TICK};
use super::files::{self, Digest, SYNC_QUEUE};
use super::output::{Outputs, Tag};
use crate::error::{CacheError, Result};
use crate::store::publish::Staging;
use crate::sync::{JoinHandle, Mutex, RecvTimeoutError, bounded, lock, spawn};

/// Runs `body` in a thread of its own. Meanwhile `interrupt` is called at once and then about every 50 ms; its error asks
/// the thread to stop, which it notices by its argument, and is returned once it has.
///
/// # Errors
/// That of `interrupt`, otherwise the first of `body` and of the threads that share its failure.
pub fn supervised<T: Send + 'static>(
    name: &'static str,
    interrupt: &mut dyn FnMut() -> Result<()>,
    body: impl FnOnce(&Arc<Failure>) -> Result<T> + Send + 'static,
) -> Result<T> {
    interrupt()?;
    let failure = Arc::new(Failure::default());
    let outcome = Arc::new(Mutex::new(None));
    let (alive, ended) = bounded::<Infallible>(1);
    let thread = {
        let (failure, outcome) = (Arc::clone(&failure), Arc::clone(&outcome));
        spawn(name, move || {
            failure.guard(name, || {
                let done = body(&failure);
                *lock(&outcome) = Some(done?);
                Ok(())
            });
            drop(alive);
        })?
    };
    let mut stopped = Ok(());
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
        stopped = interrupt();
        if stopped.is_err() {
            failure.stop();
            break;
        }
    }
    // A panic was kept as a failure.
    let _ = thread.join();
    stopped?;
    let done = lock(&outcome).take();
    done.ok_or_else(|| failure.take())
}

/// The running threads between blocks and the disk. Files that were opened must be closed or dropped before this is. Dropped
/// before its end, it stops and removes what was staged.
pub struct Flow {
    outputs: Option<Arc<Outputs>>,
    failure: Arc<Failure>,
    threads: Vec<JoinHandle<()>>,
    digests: Arc<Mutex<HashMap<Tag, Digest>>>,
    staging: Option<Arc<Staging>>,
}

impl Flow {
    /// Starts the threads. Their first error is kept in `failure`.
    ///
    /// # Errors
    /// [`CacheError::Thread`] if the system has none left.
    pub fn start(staging: Staging, failure: &Arc<Failure>) -> Result<Self> {
        let staging = Arc::new(staging);
        let (outputs, to_write, to_hash) = Outputs::new(Arc::clone(&staging), Arc::clone(failure));
        let mut flow = Self {
            outputs: Some(Arc::new(outputs)),
            failure: Arc::clone(failure),
            threads: Vec::new(),
            digests: Arc::default(),
            staging: Some(staging),
        };
        let (to_sync, synced) = bounded(SYNC_QUEUE);
        flow.thread("write", move |failure| {
            files::write(&to_write, &to_sync, failure, &|_, _| {})
        })?;
        flow.thread("sync", move |failure| {
            files::sync(&synced, failure, &|_, _| {})
        })?;
        let digests = Arc::clone(&flow.digests);
        flow.thread("hash", move |failure| {
            *lock(&digests) = files::hash(&to_hash, failure, &|_, _| {})?;
            Ok(())
        })?;
        Ok(flow)
    }

    fn thread(
        &mut self,
        name: &'static str,
        body: impl FnOnce(&Failure) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let failure = Arc::clone(&self.failure);
        let thread = spawn(name, move || failure.guard(name, || body(&failure)))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where files are created.
    ///
    /// # Errors
    /// Only internal ones.
    pub fn outputs(&self) -> Result<&Arc<Outputs>> {
        let outputs = self.outputs.as_ref();
        outputs.ok_or_else(|| CacheError::internal("files after the end of a cache"))
    }

    /// Waits until all closed files are durable; gives the stage back, and what the files hold.
    ///
    /// # Errors
    /// [`CacheError::Interrupted`] if the work was given up; the reason is in the failure.
    pub fn finish(mut self) -> Result<(Staging, HashMap<Tag, Digest>)> {
        self.join();
        self.failure.check()?;
        let digests = std::mem::take(&mut *lock(&self.digests));
        let staging = self.staging.take().and_then(Arc::into_inner);
        let staging =
            staging.ok_or_else(|| CacheError::internal("a cache is still being written"))?;
        Ok((staging, digests))
    }

    fn join(&mut self) {
        self.outputs = None;
        for thread in self.threads.drain(..) {
            // A panic was kept as a failure.
            let _ = thread.join();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if self.staging.is_some() {
            self.failure.stop();
        }
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_to_stop_gets_its_own_error_and_the_work_ends() {
        let mut asked = 0;
        let mut interrupt = || {
            asked += 1;
            match asked {
                1 | 2 => Ok(()),
                _ => Err(CacheError::option("a", "b", "c")),
            }
        };
        let ended = supervised("test", &mut interrupt, |failure| -> Result<()> {
            loop {
                failure.check()?;
                crate::sync::yield_now();
            }
        });
        assert!(matches!(ended, Err(CacheError::Option { .. })), "{ended:?}");
        let done = supervised("test", &mut || Ok(()), |_| Ok(7)).unwrap();
        assert_eq!(done, 7);
        let failed = supervised("test", &mut || Ok(()), |failure| -> Result<()> {
            failure.set(CacheError::internal("the reason"));
            Err(CacheError::Interrupted)
        });
        assert!(failed.unwrap_err().to_string().contains("the reason"));
    }
}
