//! The service context with which a client announces the code sets of a connection.

use super::{CharSet, CodeSets, WideByteOrder, WideCodeSet};
use crate::cdr::{CdrError, Decoder, Encoder};

/// The CodeSets service context (id 1, CORBA 3.0.3 section 13.10.2.5).
///
/// ```text
/// context_data, an encapsulation:
///   0 byte order | 1..4 gap | 4 unsigned long char_data | 8 unsigned long wchar_data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSetContext {
    /// The number of the code set for char.
    pub char_data: u32,
    /// The number of the code set for wchar; 0 for none.
    pub wchar_data: u32,
}

impl CodeSetContext {
    /// Length of the context's data in bytes.
    pub const LEN: usize = 12;

    /// Parses the context's data.
    ///
    /// # Errors
    /// [`CdrError::Truncated`], [`CdrError::EmptyEncapsulation`].
    pub fn parse(data: &[u8]) -> Result<CodeSetContext, CdrError> {
        let mut d = Decoder::for_encapsulation(data)?;
        Ok(CodeSetContext { char_data: d.read_u32()?, wchar_data: d.read_u32()? })
    }

    /// Returns the context's data, in the byte order of this machine.
    #[must_use]
    pub fn data(self) -> [u8; CodeSetContext::LEN] {
        let mut e = Encoder::new();
        e.write_u8(e.endian().to_flag());
        e.write_u32(self.char_data);
        e.write_u32(self.wchar_data);
        let mut data = [0; CodeSetContext::LEN];
        for (to, from) in data.iter_mut().zip(e.into_reusable_buffer()) {
            *to = from;
        }
        data
    }

    /// Returns the code sets; `None` if one of them is not supported.
    #[must_use]
    pub fn code_sets(self, wide_order: WideByteOrder) -> Option<CodeSets> {
        let (char, wchar) = (CharSet::from_id(self.char_data)?, WideCodeSet::from_id(self.wchar_data)?);
        Some(CodeSets { char, wchar, wide_order })
    }
}

impl From<CodeSets> for CodeSetContext {
    fn from(sets: CodeSets) -> CodeSetContext {
        CodeSetContext { char_data: sets.char.id(), wchar_data: sets.wchar.id() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_of_an_omniorb_client_is_parsed() {
        let data = [1, 0, 0, 0, 1, 0, 1, 0, 9, 1, 1, 0];
        let context = CodeSetContext::parse(&data).unwrap();
        assert_eq!(context.code_sets(WideByteOrder::SpecifiedOrder), Some(CodeSets::LATIN1_UTF16));
        let own = CodeSetContext::from(CodeSets::LATIN1_UTF16);
        assert_eq!(CodeSetContext::parse(&own.data()), Ok(context));
        assert_eq!(CodeSetContext::parse(&data[..9]), Err(CdrError::Truncated));
        let other = CodeSetContext { char_data: 0x1002_0417, wchar_data: 0 };
        assert_eq!(other.code_sets(WideByteOrder::SpecifiedOrder), None);
    }
}
