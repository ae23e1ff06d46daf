//! Workers, bounded queues and reorder buffer: runs of positions in, what a worker makes of them out in the order the runs
//! were submitted.
//!
//! Workers take runs in any order; the consumer puts their answers back in order. The result queue has
//! room for every run that can be out, so a worker never waits to deliver, and closing the run queue ends them all.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Plan;
use super::laps::Laps;
use super::processor::Window;
use super::profile::{Profile, Stage};
use crate::error::{CacheError, Result};
use crate::sync::{JoinHandle, Receiver, RecvTimeoutError, Sender, bounded, process_id, spawn};
use crate::types::SampleRef;

/// How often a waiting consumer looks for an interrupt.
const PATIENCE: Duration = Duration::from_millis(50);

/// Consecutive positions of a plan, to be loaded together.
pub struct Run {
    /// The plan that the positions belong to.
    pub plan: Arc<dyn Plan>,
    /// First position.
    pub start: u64,
    /// Number of positions; may be 0.
    pub count: usize,
}

/// What became of a run: the samples before the first failure, and the failure.
pub struct Outcome<T> {
    /// The samples.
    pub loaded: T,
    /// Why the samples end before the run does.
    pub failure: Option<CacheError>,
}

/// What a worker thread does with a run.
pub trait Load {
    /// What it makes; may be used again for another run.
    type Loaded: Default + Send + 'static;

    /// Loads `samples`, those of `run`, into `loaded`, which is empty. Gives up soon after `stop` is set.
    ///
    /// # Errors
    /// Why loading ended early; `loaded` then holds the samples before that, or nothing.
    fn load(
        &mut self,
        run: &Run,
        samples: Vec<SampleRef>,
        loaded: &mut Self::Loaded,
        stop: &AtomicBool,
    ) -> Result<Vec<SampleRef>>;

    /// The clock that tells where the time of loading went.
    fn laps(&mut self) -> &mut Laps;
}

struct Task<T> {
    number: u64,
    run: Run,
    loaded: T,
}

struct Answer<T> {
    number: u64,
    outcome: Outcome<T>,
}

/// The queues of a pipeline, and the threads at their other end.
struct Queues<T> {
    tasks: Sender<Task<T>>,
    answers: Receiver<Answer<T>>,
    workers: Vec<JoinHandle<()>>,
}

/// Runs on their way through the worker threads. Dropping it stops them.
pub struct Pipeline<T> {
    /// Number of the next run to submit, and of the next outcome to hand out.
    submitted: u64,
    delivered: u64,
    capacity: u64,
    /// The way to the workers and back, until it is closed.
    queues: Option<Queues<T>>,
    /// Outcomes that came early; the front is number `delivered`.
    reorder: VecDeque<Option<Outcome<T>>>,
    recycled: Vec<T>,
    stop: Arc<AtomicBool>,
    /// The process that the workers live in.
    process: u32,
}

impl<T: Default + Send + 'static> Pipeline<T> {
    /// Starts `workers` threads, each with a loader of its own, for at most `capacity` runs at a time. They tell `profile`
    /// where their time goes.
    ///
    /// # Errors
    /// [`CacheError::Internal`] if the system has no thread left.
    pub fn start<L: Load<Loaded = T> + Send + 'static>(
        workers: usize,
        capacity: usize,
        loader: impl Fn() -> L,
        profile: &Arc<Profile>,
    ) -> Result<Self> {
        let (tasks, task_queue) = bounded::<Task<T>>(capacity);
        let (answer_queue, answers) = bounded::<Answer<T>>(capacity);
        let stop = Arc::new(AtomicBool::new(false));
        let mut queues = Queues {
            tasks,
            answers,
            workers: Vec::new(),
        };
        for _ in 0..workers {
            let worker = Worker {
                loader: loader(),
                stop: Arc::clone(&stop),
                samples: Vec::new(),
                profile: Arc::clone(profile),
            };
            let (tasks, answers) = (task_queue.clone(), answer_queue.clone());
            queues
                .workers
                .push(spawn("reader", move || worker.run(&tasks, &answers))?);
        }
        Ok(Self {
            submitted: 0,
            delivered: 0,
            capacity: capacity as u64,
            queues: Some(queues),
            reorder: VecDeque::new(),
            recycled: Vec::new(),
            stop,
            process: process_id(),
        })
    }

    /// Whether another run may be submitted now.
    pub fn has_room(&self) -> bool {
        self.queues.is_some() && self.submitted - self.delivered < self.capacity
    }

    /// Whether a submitted run has not been handed out yet.
    pub fn is_waiting(&self) -> bool {
        self.queues.is_some() && self.delivered < self.submitted
    }

    /// Submits a run; only while [`Pipeline::has_room`].
    pub fn submit(&mut self, run: Run) -> Result<()> {
        let task = Task {
            number: self.submitted,
            run,
            loaded: self.recycled.pop().unwrap_or_default(),
        };
        let sent = self
            .queues
            .as_ref()
            .is_some_and(|queues| queues.tasks.try_send(task).is_ok());
        if !sent {
            return Err(CacheError::internal(
                "a run was submitted to a reader without room",
            ));
        }
        self.submitted += 1;
        Ok(())
    }

    /// Takes back what was consumed, emptied, to use its memory again.
    pub fn recycle(&mut self, emptied: T) {
        self.recycled.push(emptied);
    }

    /// The outcome of the next run in order; only while [`Pipeline::is_waiting`].
    ///
    /// `interrupt` is called about every 50 ms of waiting; its error ends the wait and is returned.
    pub fn next(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Outcome<T>> {
        loop {
            if let Some(front) = self.reorder.front_mut().and_then(Option::take) {
                self.reorder.pop_front();
                self.delivered += 1;
                return Ok(front);
            }
            let Some(queues) = &self.queues else {
                return Err(CacheError::internal(
                    "a reader was asked for more after it was closed",
                ));
            };
            let answer = match queues.answers.recv_timeout(PATIENCE) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => {
                    interrupt()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CacheError::internal("every reader thread is gone"));
                }
            };
            let ahead = usize::try_from(answer.number - self.delivered).unwrap_or(usize::MAX);
            if self.reorder.len() <= ahead {
                self.reorder.resize_with(ahead + 1, || None);
            }
            if let Some(place) = self.reorder.get_mut(ahead) {
                *place = Some(answer.outcome);
            }
        }
    }
}

impl<T> Pipeline<T> {
    /// Stops the workers and waits for them: each finishes at most the record it is reading.
    ///
    /// In a forked child there are no workers to stop, and what they had locked stays locked: all of it is left alone.
    pub fn close(&mut self) {
        let Some(Queues {
            tasks,
            answers,
            workers,
        }) = self.queues.take()
        else {
            return;
        };
        if self.process != process_id() {
            std::mem::forget((tasks, answers, workers));
            return;
        }
        self.stop.store(true, Ordering::Relaxed);
        drop(tasks);
        for worker in workers {
            // A worker that panicked has already reported it as the outcome of its run.
            let _ = worker.join();
        }
        self.reorder.clear();
        self.recycled.clear();
    }
}

impl<T> Drop for Pipeline<T> {
    fn drop(&mut self) {
        self.close();
    }
}

struct Worker<L> {
    loader: L,
    stop: Arc<AtomicBool>,
    samples: Vec<SampleRef>,
    profile: Arc<Profile>,
}

impl<L: Load> Worker<L> {
    fn run(mut self, tasks: &Receiver<Task<L::Loaded>>, answers: &Sender<Answer<L::Loaded>>) {
        let mut window = Window::begin();
        self.loader.laps().start();
        self.serve(tasks, answers, &mut window);
        self.report(&mut window);
    }

    fn serve(
        &mut self,
        tasks: &Receiver<Task<L::Loaded>>,
        answers: &Sender<Answer<L::Loaded>>,
        window: &mut Window,
    ) {
        while let Ok(task) = tasks.recv() {
            self.loader.laps().lap(Stage::Room);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let Task {
                number,
                run,
                mut loaded,
            } = task;
            let done = catch_unwind(AssertUnwindSafe(|| self.load(&run, &mut loaded)));
            let failure = done
                .unwrap_or_else(|_| Err(CacheError::internal("a reader thread panicked")))
                .err();
            let outcome = Outcome { loaded, failure };
            if answers.send(Answer { number, outcome }).is_err() {
                return;
            }
            if self.loader.laps().is_due() {
                self.report(window);
            }
        }
    }

    fn report(&mut self, window: &mut Window) {
        let spent = self.loader.laps().take();
        self.profile.add(&spent, window.turn(spent.busy()));
    }

    fn load(&mut self, run: &Run, loaded: &mut L::Loaded) -> Result<()> {
        let mut samples = std::mem::take(&mut self.samples);
        run.plan.fill(run.start, run.count, &mut samples)?;
        self.loader.laps().lap(Stage::Plan);
        self.samples = self.loader.load(run, samples, loaded, &self.stop)?;
        Ok(())
    }
}
