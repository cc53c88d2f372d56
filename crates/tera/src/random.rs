//! The random numbers of the rows: a linear congruential generator of 128 bits, which can jump.

/// The map `x -> multiplier * x + increment`, modulo 2^128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Affine {
    multiplier: u128,
    increment: u128,
}

/// One step of the generator. The first ten bytes of the increment spell "JimGrayRIP", which is
/// therefore the first key of the modern and the legacy layout.
const STEP: Affine = Affine {
    multiplier: 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645,
    increment: 0x4a69_6d47_7261_7952_4950_2020_2020_2001,
};

impl Affine {
    const IDENTITY: Affine = Affine { multiplier: 1, increment: 0 };

    #[inline]
    fn apply(self, x: u128) -> u128 {
        self.multiplier.wrapping_mul(x).wrapping_add(self.increment)
    }

    /// Combines two maps: first `self`, then `next`.
    fn then(self, next: Affine) -> Affine {
        Affine {
            multiplier: self.multiplier.wrapping_mul(next.multiplier),
            increment: next.apply(self.increment),
        }
    }

    /// Applies `self` `times` times, by squaring: at most 128 rounds.
    fn repeated(self, times: u128) -> Affine {
        let mut result = Affine::IDENTITY;
        let mut square = self;
        let mut left = times;
        while left > 0 {
            if left & 1 == 1 {
                result = result.then(square);
            }
            square = square.then(square);
            left >>= 1;
        }
        result
    }
}

/// The random number of one row, `R(number)` in the byte tables: the state after `number + 1` steps from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u128);

impl Random {
    /// Returns the random number of row `number`.
    pub fn of_row(number: u128) -> Random {
        // The period is 2^128, so no steps and 2^128 steps are the same.
        Random(STEP.repeated(number.wrapping_add(1)).apply(0))
    }

    /// Returns all 128 bits.
    #[inline]
    pub fn bits(self) -> u128 {
        self.0
    }

    /// Advances to the next row.
    #[inline]
    pub fn step(&mut self) {
        self.0 = STEP.apply(self.0);
    }

    /// Advances by `rows` rows.
    pub fn jump(&mut self, rows: u128) {
        self.0 = STEP.repeated(rows).apply(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Affine, Random, STEP};

    #[test]
    fn row_zero_has_the_increment() {
        assert_eq!(Random::of_row(0).bits(), STEP.increment);
        assert_eq!(&Random::of_row(0).bits().to_be_bytes()[..10], b"JimGrayRIP");
    }

    #[test]
    fn the_last_row_comes_back_to_zero() {
        let mut random = Random::of_row(u128::MAX);
        assert_eq!(random.bits(), 0);
        random.step();
        assert_eq!(random, Random::of_row(0));
    }

    #[test]
    fn repeating_equals_applying_in_a_loop() {
        let mut x = 12345;
        for times in 0..300 {
            assert_eq!(STEP.repeated(times).apply(12345), x, "{times}");
            x = STEP.apply(x);
        }
        assert_eq!(STEP.repeated(0), Affine::IDENTITY);
    }
}
