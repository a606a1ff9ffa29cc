//! Medians, spreads, and a ratio with its interval. No mean: one slow run on a shared machine would move it.

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng as _, SeedableRng as _},
};
use serde::Serialize;
use std::fmt;

/// Number of bootstrap resamples. More would move the interval's ends by less than the noise of a run.
const RESAMPLES: usize = 10_000;
/// The bootstrap's seed: the same measurements give the same interval.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub lowest: f64,
    pub lower_quartile: f64,
    pub median: f64,
    pub upper_quartile: f64,
    pub highest: f64,
}

impl Spread {
    /// Returns `None` if there are no measurements.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        Some(Self {
            lowest: *values.first()?,
            lower_quartile: quantile(&values, 0.25)?,
            median: quantile(&values, 0.5)?,
            upper_quartile: quantile(&values, 0.75)?,
            highest: *values.last()?,
        })
    }
}

pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// A ratio, and its 95 % bootstrap interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// `2.72 (2.50–2.90)`.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.ratio, self.low, self.high)
    }
}

impl Ratio {
    /// median(`above`) / median(`below`). Each group is resampled by itself, with replacement.
    pub fn of(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratio = median(above)? / median(below)?;
        Self::with_interval(ratio, |random| {
            Some(median(&resample(random, above))? / median(&resample(random, below))?)
        })
    }

    /// The median of the ratios of neighbouring runs, of which each group has the same number: what disturbs
    /// the machine for longer than a run changes both of them. Pairs are resampled.
    pub fn of_pairs(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratios: Vec<_> = above.iter().zip(below).map(|(above, below)| above / below).collect();
        Self::with_interval(median(&ratios)?, |random| median(&resample(random, &ratios)))
    }

    /// Adds the interval of what `resampled` returns.
    fn with_interval(ratio: f64, mut resampled: impl FnMut(&mut SplitMix64) -> Option<f64>) -> Option<Self> {
        // Small, and good enough to draw indices.
        let mut random = SplitMix64::seed_from_u64(SEED);
        let ratios = (0..RESAMPLES).map(|_| resampled(&mut random)).collect::<Option<Vec<_>>>();
        let mut ratios = ratios?;
        ratios.sort_by(f64::total_cmp);
        Some(Self { ratio, low: quantile(&ratios, 0.025)?, high: quantile(&ratios, 0.975)? })
    }
}

/// Returns a quantile of sorted values, interpolated linearly (type 7 of Hyndman and Fan: R's and NumPy's
/// default).
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let place = q * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// Draws as many values as there are, with replacement.
fn resample(random: &mut SplitMix64, values: &[f64]) -> Vec<f64> {
    let mut draw = || ((u128::from(random.next_u64()) * values.len() as u128) >> 64) as usize;
    (0..values.len()).map(|_| values[draw()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_of_known_numbers() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        let Spread { lowest, lower_quartile, median, upper_quartile, highest } = spread;
        assert_eq!([lowest, lower_quartile, median, upper_quartile, highest], [1.0, 2.0, 3.0, 4.0, 5.0]);
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.lower_quartile, spread.median, spread.upper_quartile), (1.75, 2.5, 3.25));
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.lowest, one.median, one.highest), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_has_an_interval_and_always_the_same() {
        let (fast, slow) = ([9.0, 10.0, 11.0, 10.0, 10.5], [29.0, 30.0, 33.0, 30.0, 31.0]);
        let ratio = Ratio::of(&slow, &fast).unwrap();
        assert_eq!(ratio.ratio, 3.0);
        assert!(ratio.low < 3.0 && ratio.low >= 29.0 / 11.0, "{ratio:?}");
        assert!(ratio.high > 3.0 && ratio.high <= 33.0 / 9.0, "{ratio:?}");
        assert_eq!(Ratio::of(&slow, &fast), Some(ratio));
    }

    #[test]
    fn neighbouring_runs_are_compared_where_the_machine_changes() {
        // It is ten times as slow in the end.
        let (off, on) = ([20.0, 22.0, 200.0, 200.0, 210.0], [10.0, 10.0, 10.0, 100.0, 105.0]);
        let Ratio { ratio, low, high } = Ratio::of_pairs(&off, &on).unwrap();
        assert_eq!((ratio, low, high), (2.0, 2.0, 20.0));
        assert_eq!(Ratio::of_pairs(&[], &[]), None);
    }

    #[test]
    fn equal_measurements_have_no_interval() {
        let ratio = Ratio::of(&[4.0; 3], &[2.0; 3]).unwrap();
        assert_eq!((ratio.ratio, ratio.low, ratio.high), (2.0, 2.0, 2.0));
        assert_eq!(Ratio::of(&[1.0], &[]), None);
    }
}
