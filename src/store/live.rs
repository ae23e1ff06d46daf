//! The samples of a cache that are left: dense positions and the ids behind them.
//!
//! Deleted ids are kept as the position that the next id after each has. Short runs of positions each know how many of
//! these come before them and the few that lie within, so that the id at a position costs one look into memory.

/// Gaps within a run that it knows itself.
const NEAR: usize = 4;
/// Longest run, as a power of two: offsets in it have 16 bits, of which the largest stands for none.
const SHIFT_MAX: u32 = 15;
/// Mark of a run with more gaps than it knows.
const CROWDED: u64 = 1 << 63;

/// A run of positions.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of gaps up to its first position, or [`CROWDED`].
    before: u64,
    /// Later gaps in it, by their offset from there.
    near: [u16; NEAR],
}

/// Which ids of `0..ids` are left.
#[derive(Debug)]
pub struct LiveIds {
    /// For each deleted id in ascending order, the number of ids before it that are left.
    gaps: Box<[u64]>,
    /// Runs of `1 << shift` positions.
    runs: Box<[Run]>,
    shift: u32,
    len: u64,
}

impl LiveIds {
    /// All of `0..ids` but `deleted`, which must be ascending and within; otherwise nothing.
    pub fn new(mut deleted: Vec<u64>, ids: u64) -> Option<Self> {
        let is_ascending = deleted.is_sorted_by(|a, b| a < b);
        if !is_ascending || deleted.last().is_some_and(|last| *last >= ids) {
            return None;
        }
        for (count, id) in (0u64..).zip(&mut deleted) {
            *id -= count;
        }
        let len = ids - deleted.len() as u64;
        let mut shift = 0;
        while shift < SHIFT_MAX && len >> shift > 2 * deleted.len() as u64 {
            shift += 1;
        }
        let mut gaps = deleted.iter().copied().peekable();
        let mut before = 0;
        let runs = (0..=len >> shift).map(|run| {
            let first = run << shift;
            while gaps.next_if(|gap| *gap <= first).is_some() {
                before += 1;
            }
            let mut known = Run {
                before,
                near: [u16::MAX; NEAR],
            };
            let mut near = known.near.iter_mut();
            let end = first + (1 << shift);
            while let Some(gap) = gaps.next_if(|gap| *gap < end) {
                before += 1;
                match near.next() {
                    Some(slot) => *slot = (gap - first) as u16,
                    None => known.before = CROWDED,
                }
            }
            known
        });
        let runs = runs.collect();
        Some(Self {
            gaps: deleted.into(),
            runs,
            shift,
            len,
        })
    }

    /// Number of ids that are left.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The id at a position below [`LiveIds::len`].
    #[inline]
    pub fn id(&self, position: u64) -> u64 {
        let run = self.runs.get((position >> self.shift) as usize);
        match run {
            Some(run) if run.before != CROWDED => {
                let offset = (position & ((1 << self.shift) - 1)) as u16;
                let passed = run.near.iter().map(|gap| u64::from(*gap <= offset));
                position + run.before + passed.sum::<u64>()
            }
            _ => position + self.gaps.partition_point(|gap| *gap <= position) as u64,
        }
    }

    /// The position of an id, or nothing if it is deleted or was never given.
    pub fn position(&self, id: u64) -> Option<u64> {
        // Gap number `n` is the deleted id `gaps[n] + n`, and these ascend.
        let (mut low, mut high) = (0, self.gaps.len());
        while low < high {
            let middle = low.midpoint(high);
            let deleted = self.gaps.get(middle)? + middle as u64;
            match deleted.cmp(&id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Some(id - low as u64).filter(|position| *position < self.len)
    }

    /// The ids that are gone, in ascending order.
    pub fn deleted(&self) -> impl Iterator<Item = u64> {
        (0u64..).zip(&self.gaps).map(|(count, gap)| gap + count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_ids_correspond_whatever_is_gone() {
        let third: Vec<u64> = (0..1000).step_by(3).collect();
        for (ids, deleted) in [
            (0, vec![]),
            (5, vec![]),
            (5, vec![0]),
            (5, vec![4]),
            (5, vec![0, 1, 2, 3, 4]),
            (1000, vec![0, 1, 2, 500, 501, 999]),
            (1000, third),
            (1000, (100..900).collect()),
            (1000, (0..999).collect()),
            (1000, (0..1000).filter(|id| id % 3 > 0).collect()),
            (100_000, (0..100_000).filter(|id| id % 50_000 < 9).collect()),
            (100_000, vec![5, 6, 7, 8, 9, 40, 41, 42, 43, 77_777]),
            (100_000, vec![7, 99_999]),
        ] {
            let live = LiveIds::new(deleted.clone(), ids).unwrap();
            let naive: Vec<u64> = (0..ids).filter(|id| !deleted.contains(id)).collect();
            assert_eq!(live.len(), naive.len() as u64);
            for (position, id) in (0..).zip(&naive) {
                assert_eq!(live.id(position), *id, "{ids} {position}");
                assert_eq!(live.position(*id), Some(position), "{ids} {id}");
            }
            for id in &deleted {
                assert_eq!(live.position(*id), None);
            }
            assert_eq!(live.position(ids), None);
            assert_eq!(live.position(u64::MAX), None);
            assert!(live.deleted().eq(deleted));
        }
    }

    #[test]
    fn ids_out_of_order_repeated_or_never_given_are_refused() {
        for deleted in [vec![2, 1], vec![1, 1], vec![5], vec![0, u64::MAX]] {
            assert!(LiveIds::new(deleted, 5).is_none());
        }
    }
}
