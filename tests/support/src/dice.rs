//! Random numbers that are the same each time.

/// A generator by xorshift (Marsaglia, 2003). Its seed isn't 0.
pub struct Dice(pub u64);

impl Dice {
    /// Returns a number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
