//! Digits in rows: hexadecimal numbers, repeated digits, base 95.

/// Hexadecimal digits of a row number.
pub const NUMBER_DIGITS: usize = 32;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// For each byte its two hexadecimal digits, each four times: the filling of legacy and ASCII rows.
const FOURFOLD: [[u8; 8]; 256] = fourfold();

const fn fourfold() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut place = 0;
        while place < 4 {
            table[byte][place] = HEX[byte >> 4];
            table[byte][place + 4] = HEX[byte & 15];
            place += 1;
        }
        byte += 1;
    }
    table
}

/// Formats `number` as 32 upper-case hexadecimal digits.
pub fn hexadecimal(number: u128) -> [u8; NUMBER_DIGITS] {
    std::array::from_fn(|place| HEX[(number >> (4 * (NUMBER_DIGITS - 1 - place))) as usize & 15])
}

/// Adds 1 to a number written by [`hexadecimal`]; the largest wraps to 0. Cheaper than formatting it again, because 15
/// of 16 times only the last digit changes.
#[inline]
pub fn increment_hexadecimal(digits: &mut [u8; NUMBER_DIGITS]) {
    for digit in digits.iter_mut().rev() {
        match *digit {
            b'F' => *digit = b'0',
            b'9' => {
                *digit = b'A';
                return;
            }
            _ => {
                *digit += 1;
                return;
            }
        }
    }
}

/// Writes the lowest `filling.len() / 4` hexadecimal digits of `bits`, the most significant first, each four times.
#[inline]
pub fn write_fourfold<const PAIRS: usize>(filling: &mut [[u8; 8]; PAIRS], bits: u128) {
    for (place, pair) in filling.iter_mut().enumerate() {
        *pair = FOURFOLD[(bits >> (8 * (PAIRS - 1 - place))) as usize & 255];
    }
}

/// Returns the lowest hexadecimal digit of `bits` four times.
#[inline]
pub fn fourfold_digit(bits: u128) -> [u8; 4] {
    [HEX[bits as usize & 15]; 4]
}

/// Writes the lowest digits of `number` in base 95, the least significant first, digit 0 as a space.
#[inline]
pub fn write_base_95(digits: &mut [u8], number: u64) {
    let mut rest = number;
    for digit in digits {
        *digit = b' ' + (rest % 95) as u8;
        rest /= 95;
    }
}

#[cfg(test)]
mod tests {
    use super::{fourfold_digit, hexadecimal, increment_hexadecimal, write_base_95, write_fourfold};

    #[test]
    fn incrementing_equals_writing_anew() {
        for number in [0, 9, 15, 0x9f, 0xff, 0xffff, (1 << 64) - 1, (1 << 100) + 0xafff, u128::MAX] {
            let mut digits = hexadecimal(number);
            increment_hexadecimal(&mut digits);
            assert_eq!(digits, hexadecimal(number.wrapping_add(1)), "{number:x}");
        }
        assert_eq!(&hexadecimal(0xabc), b"00000000000000000000000000000ABC");
    }

    #[test]
    fn digits_are_repeated_and_written_in_base_95() {
        let mut filling = [[0; 8]; 2];
        write_fourfold(&mut filling, 0xf12a0);
        assert_eq!(filling.as_flattened(), b"11112222AAAA0000");
        assert_eq!(&fourfold_digit(0x3e), b"EEEE");
        let mut digits = [0; 3];
        write_base_95(&mut digits, 94 + 95 * 33);
        assert_eq!(&digits, b"~A ");
    }
}
