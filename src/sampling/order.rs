use crate::error::Result;
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Physical,
    Multinomial,
}
#[derive(Debug)]
pub struct Order {
    rows: u64,
}
pub struct EpochOrder {
    rows: u64,
}
impl Order {
    pub fn new(_m: Mode, rows: u64, _w: Option<&[f64]>, _s: u64, _e: Option<u64>) -> Result<Self> {
        Ok(Self { rows })
    }
    pub fn epoch(&self, _e: u32) -> EpochOrder {
        EpochOrder { rows: self.rows }
    }
}
impl EpochOrder {
    pub fn len(&self) -> u64 {
        self.rows
    }
    pub fn fill(&self, start: u64, out: &mut [u64]) -> Result<()> {
        for (i, o) in (start..).zip(out.iter_mut()) {
            *o = i;
        }
        Ok(())
    }
}
