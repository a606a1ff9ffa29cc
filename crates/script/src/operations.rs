//! Splits scripts into operations.

pub(crate) const OP_PUSHDATA1: u8 = 0x4c;
pub(crate) const OP_PUSHDATA2: u8 = 0x4d;
pub(crate) const OP_PUSHDATA4: u8 = 0x4e;
pub(crate) const OP_1NEGATE: u8 = 0x4f;
pub(crate) const OP_RESERVED: u8 = 0x50;
pub(crate) const OP_1: u8 = 0x51;
pub(crate) const OP_16: u8 = 0x60;
/// An opcode that Core does not know. It represents a truncated push, which fails whether it is executed or
/// not.
pub(crate) const OP_INVALIDOPCODE: u8 = 0xff;

/// The numbers that OP_1 to OP_16 push.
const SMALL_NUMBERS: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// An operation of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) opcode: u8,
    /// The data that it pushes; `None` if it is not a push.
    pub(crate) data: Option<&'a [u8]>,
    /// All its bytes.
    pub(crate) bytes: &'a [u8],
    /// Whether it is a push whose data is truncated by the end of the script.
    pub(crate) is_torn: bool,
}

/// Returns the operations of a script; a truncated push is the last one.
pub(crate) fn operations(mut script: &[u8]) -> impl Iterator<Item = Operation<'_>> {
    std::iter::from_fn(move || {
        let (&opcode, rest) = script.split_first()?;
        let Some((data, after)) = pushed(opcode, rest) else {
            let bytes = std::mem::take(&mut script);
            return Some(Operation { opcode: OP_INVALIDOPCODE, data: None, bytes, is_torn: true });
        };
        let (bytes, _) = script.split_at(script.len() - after.len());
        script = after;
        Some(Operation { opcode, data, bytes, is_torn: false })
    })
}

/// Returns the data that an opcode pushes, and the rest of the script; `None` if the data is truncated.
fn pushed(opcode: u8, rest: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (len, rest) = match opcode {
        len @ 0..OP_PUSHDATA1 => (len.into(), rest),
        OP_PUSHDATA1 => (rest.first().copied()?.into(), rest.get(1..)?),
        OP_PUSHDATA2 => (u16::from_le_bytes(*rest.first_chunk()?).into(), rest.get(2..)?),
        OP_PUSHDATA4 => (u32::from_le_bytes(*rest.first_chunk()?) as usize, rest.get(4..)?),
        OP_1NEGATE => return Some((Some(&[0x81]), rest)),
        OP_1..=OP_16 => {
            let number = usize::from(opcode - OP_1);
            return Some((SMALL_NUMBERS.get(number..=number), rest));
        }
        _ => return Some((None, rest)),
    };
    let (data, rest) = rest.split_at_checked(len)?;
    Some((Some(data), rest))
}

/// Returns the items that a push-only script pushes; `None` if it has another operation or a truncated push.
pub(crate) fn pushes(script: &[u8]) -> Option<Vec<&[u8]>> {
    operations(script).map(|operation| operation.data).collect()
}

/// Returns a script that pushes these bytes, of which there must be fewer than 65,536.
pub(crate) fn push(data: &[u8]) -> Vec<u8> {
    let len = data.len();
    let mut script = match len {
        0..0x4c => vec![len as u8],
        0x4c..0x100 => vec![OP_PUSHDATA1, len as u8],
        _ => [&[OP_PUSHDATA2][..], &(len as u16).to_le_bytes()].concat(),
    };
    script.extend(data);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_round_trip() {
        for len in [0, 1, 0x4b, 0x4c, 0xff, 0x100, 520, 521] {
            let data = vec![7; len];
            assert_eq!(pushes(&push(&data)), Some(vec![&data[..]]), "{len}");
        }
        assert_eq!(pushes(&[2, 7]), None);
        assert_eq!(pushes(&[OP_1, 0, OP_16, OP_1NEGATE]), Some(vec![&[1][..], &[], &[16], &[0x81]]));
        assert_eq!(pushes(&[OP_16 + 1]), None);
        assert_eq!(pushes(&[OP_RESERVED]), None);
        assert_eq!(pushes(&[]), Some(vec![]));
    }

    #[test]
    fn operations_cover_all_bytes_of_a_script() {
        for script in
            [&[2, 7, 7, 0x76, OP_PUSHDATA1, 1, 9][..], &[0x61, OP_PUSHDATA2, 2, 0, 1], &[OP_PUSHDATA4]]
        {
            let bytes: Vec<u8> = operations(script).flat_map(|operation| operation.bytes.to_vec()).collect();
            assert_eq!(bytes, script);
        }
        let torn = operations(&[OP_1, 2, 7]).last().unwrap();
        assert!(torn.is_torn && torn.opcode == OP_INVALIDOPCODE);
    }
}
