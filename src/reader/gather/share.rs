//! How the time of a transfer divides into verifying, decoding and copying, told from a few records now and then.
//!
//! The three happen record by record, too quickly to be timed. So some records are verified and decoded once more, into
//! nothing; what that would come to for all of them is taken from the whole, and the rest is copying, and the way to memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::copy::stored;
use super::files::{Files, Located};
use crate::error::Result;
use crate::format::checksum::Crc32c;
use crate::format::compression::{Decoder, payload_len, plain};
use crate::limits::CHUNK_BYTES_TARGET;
use crate::reader::laps::{Laps, Spent};
use crate::reader::profile::Stage;

/// Records that are looked at, at most.
const RECORDS: usize = 8;
/// Time of transfers for each time spent here.
const THRIFT: u32 = 400;
/// Least time of transfers between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The proportions found last.
#[derive(Debug, Default)]
pub(super) struct Shares {
    shares: Spent,
    /// Time of transfers before the next look.
    pause: Duration,
    payload: Vec<u8>,
}

impl Shares {
    /// Divides the time that transferring `rows` records took on each of `threads`, which is that since the clock was last
    /// read; `find` tells where number `i` is. Returns the time.
    pub fn lap(
        &mut self,
        laps: &mut Laps,
        files: &Files,
        rows: usize,
        threads: usize,
        find: impl Fn(usize) -> Option<Located>,
    ) -> Duration {
        let time = laps.read();
        if self.is_updated(files, rows, time, threads, find) {
            laps.start();
        }
        laps.add_by(time, &self.shares);
        time
    }

    /// Looks again if it is time to.
    fn is_updated(
        &mut self,
        files: &Files,
        rows: usize,
        time: Duration,
        threads: usize,
        find: impl Fn(usize) -> Option<Located>,
    ) -> bool {
        self.pause = self.pause.saturating_sub(time);
        if !self.pause.is_zero() || rows == 0 {
            return false;
        }
        let began = Instant::now();
        let step = rows.div_ceil(RECORDS);
        let (mut verifying, mut decoding, mut count) = (Duration::ZERO, Duration::ZERO, 0);
        let mut decoder = Decoder::default();
        for at in (0..rows).step_by(step).filter_map(find) {
            // A record that cannot be read again was refused before.
            if let Ok((verified, decoded)) = self.time_of(files, &at, &mut decoder) {
                verifying += verified;
                decoding += decoded;
                count += 1;
            }
            if began.elapsed() > PAUSE / THRIFT {
                break;
            }
        }
        let scale = rows as f64 / f64::from(count.max(1));
        let (verifying, decoding) = (verifying.mul_f64(scale), decoding.mul_f64(scale));
        let whole = time.saturating_mul(u32::try_from(threads).unwrap_or(u32::MAX));
        self.shares = Spent::default();
        self.shares.add(Stage::Verify, verifying);
        self.shares.add(Stage::Decode, decoding);
        let rest = whole.saturating_sub(verifying + decoding);
        self.shares.add(Stage::Copy, rest);
        self.payload.shrink_to(CHUNK_BYTES_TARGET);
        self.pause = PAUSE.max(began.elapsed() * THRIFT);
        true
    }

    /// What verifying and decoding a record take.
    fn time_of(
        &mut self,
        files: &Files,
        at: &Located,
        decoder: &mut Decoder,
    ) -> Result<(Duration, Duration)> {
        let record = files.bytes(at).unwrap_or_default();
        let began = Instant::now();
        if files.is_compared(at) {
            black_box(Crc32c::of_record(record, at.sample));
        }
        let verified = Instant::now();
        let stored = stored(files, at, record)?;
        if plain(at.algorithm, stored).is_none() {
            let fault = |found| files.fault(at, found);
            payload_len(at.algorithm, stored).map_err(fault)?;
            self.payload.clear();
            let dictionary = files.dictionary(at)?;
            decoder
                .append(at.algorithm, dictionary, stored, &mut self.payload)
                .map_err(fault)?;
            black_box(&self.payload);
            return Ok((verified - began, verified.elapsed()));
        }
        Ok((verified - began, Duration::ZERO))
    }
}
