//! Products of 3072-bit numbers with the instructions of BMI2 and ADX, which add with two carries at a time:
//! one for the words of the result, one for the upper halves of products.

use super::LIMBS;
use std::arch::asm;

/// Whether this processor has the instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("adx")
}

/// Adds the product of `rdx` and the word `$at` of `b` to that word of `out`. `$above` is the upper half of
/// the product before, `$half` becomes that of this one.
macro_rules! multiply_word {
    ($at:literal, $above:literal, $half:literal) => {
        concat!(
            "mulx ",
            $half,
            ", {low}, [{b} + 8 * ",
            $at,
            "]\n",
            "adcx {low}, [{out} + 8 * ",
            $at,
            "]\n",
            "adox {low}, ",
            $above,
            "\n",
            "mov [{out} + 8 * ",
            $at,
            "], {low}\n",
        )
    };
}

macro_rules! multiply_words {
    ($($even:literal $odd:literal)*) => {
        concat!($(multiply_word!($even, "{even}", "{odd}"), multiply_word!($odd, "{odd}", "{even}")),*)
    };
}

#[target_feature(enable = "bmi2,adx")]
pub(super) fn wide_product(a: &[u64; LIMBS], b: &[u64; LIMBS]) -> [u64; 2 * LIMBS] {
    let mut product = [0; 2 * LIMBS];
    for (word, out) in a.iter().zip(0..) {
        let out: &mut [u64] = &mut product[out..=out + LIMBS];
        // SAFETY: the words of `b`, and one more of `out`, are read and written.
        unsafe {
            asm!(
                // Both carries are 0 then.
                "xor {even:e}, {even:e}",
                multiply_words!(
                    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
                ),
                "mov {low:e}, 0",
                "adcx {even}, {low}",
                "adox {even}, {low}",
                "mov [{out} + 8 * 48], {even}",
                in("rdx") *word,
                b = in(reg) b.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
                low = out(reg) _,
                even = out(reg) _,
                odd = out(reg) _,
                options(nostack),
            );
        }
    }
    product
}
