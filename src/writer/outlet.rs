//! The way of full chunks out of the caller's thread: held back while a dictionary needs samples to train on, then on to
//! the workers.

use super::chunk::Chunk;
use super::manifest::Written;
use super::pipeline::Pipeline;
use super::training::Training;
use crate::error::Result;

/// Takes full chunks and gives empty ones. Everything that may wait calls `interrupt` at least every 50 ms while it does.
pub(super) struct Outlet {
    pipeline: Pipeline,
    /// The samples so far, while there are too few to train a dictionary on.
    pub training: Option<Training>,
}

impl Outlet {
    /// A way that ends in `pipeline`.
    pub fn new(pipeline: Pipeline, training: Option<Training>) -> Self {
        Self { pipeline, training }
    }

    /// An empty chunk to fill. Those to be held back are not of the pipeline, which would run out of them.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn empty_chunk(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Box<Chunk>> {
        match self.training {
            Some(_) => Ok(Box::default()),
            None => self.pipeline.empty_chunk(interrupt),
        }
    }

    /// Sends a chunk on, or holds it back while there are too few samples. One without samples goes nowhere.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn send(
        &mut self,
        chunk: Option<Box<Chunk>>,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let chunk = chunk.filter(|chunk| chunk.len() > 0);
        let Some(training) = &mut self.training else {
            return chunk.map_or(Ok(()), |chunk| self.pipeline.send(chunk));
        };
        chunk.into_iter().for_each(|chunk| training.hold(*chunk));
        if training.is_enough() {
            return self.end_training(interrupt);
        }
        Ok(())
    }

    /// Has the dictionary trained on the samples so far, if that is still to be done, and sends them on.
    fn end_training(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let Some(training) = self.training.take() else {
            return Ok(());
        };
        self.pipeline
            .train(|done| training.lesson(done), interrupt)?;
        for chunk in training.into_chunks() {
            // Chunks held back come in place of the empty ones, so that never more are on their way.
            drop(self.pipeline.empty_chunk(interrupt)?);
            self.pipeline.send(Box::new(chunk))?;
        }
        Ok(())
    }

    /// Waits until everything that was sent is in durable files.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn finish(mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Written> {
        self.end_training(interrupt)?;
        let (committed, digests) = self.pipeline.finish(interrupt)?;
        Ok(Written { committed, digests })
    }
}
