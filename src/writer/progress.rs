//! The progress line of a write. It only shows counters; nothing depends on it.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::profiler::Profile;

/// A line on standard error: sources done, samples and megabytes per second, and the time left over all sources.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    shown: Option<Instant>,
}

/// Shortest time between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);

impl Progress {
    /// Starts a line for this many sources. It stays hidden unless `enabled` and standard error is a terminal.
    pub fn new(sources: u64, enabled: bool) -> Self {
        if !enabled || !stderr().is_terminal() {
            return Self {
                bar: ProgressBar::hidden(),
                shown: None,
            };
        }
        let bar =
            ProgressBar::with_draw_target(Some(sources), ProgressDrawTarget::stderr_with_hz(8));
        let line = "{spinner} {pos}/{len} sources [{bar:24}] {msg}, {elapsed} so far, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(line) {
            bar.set_style(style);
        }
        Self { bar, shown: None }
    }

    /// Shows what the counters say, now and then. Cheap enough to be called for every chunk.
    pub fn update(&mut self, source: &str, profile: &Profile) {
        if self.bar.is_hidden() || self.shown.is_some_and(|shown| shown.elapsed() < INTERVAL) {
            return;
        }
        self.shown = Some(Instant::now());
        let (samples, bytes) = profile.committed();
        self.bar
            .set_message(describe(source, samples, bytes, profile.elapsed()));
        self.bar.tick();
    }

    /// One more source is done, well or badly.
    pub fn source_done(&self) {
        self.bar.inc(1);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn describe(source: &str, samples: u64, bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    format!(
        "{source}: {} samples, {:.0} samples/s, {:.1} MB/s",
        HumanCount(samples),
        samples as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_gives_rates_in_samples_and_megabytes_per_second() {
        assert_eq!(
            describe("train", 12_000, 8_000_000, Duration::from_secs(2)),
            "train: 12,000 samples, 6000 samples/s, 4.0 MB/s"
        );
    }

    #[test]
    fn a_hidden_line_takes_every_call() {
        let mut progress = Progress::new(2, false);
        progress.update("train", &Profile::default());
        progress.source_done();
        progress.finish();
        assert!(progress.bar.is_hidden());
    }
}
