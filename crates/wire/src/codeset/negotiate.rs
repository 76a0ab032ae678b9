//! The client's choice of transmission code sets (CORBA 3.0.3 section 13.10.2.6).

use super::{CharSet, CodeSets, WideByteOrder, WideCodeSet, id};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder};

/// The code sets of one side for char or for wchar: the native code set, and the code sets that
/// this side can convert.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CodeSetComponent {
    /// The number of the native code set; 0 for none.
    pub native: u32,
    /// The numbers of the conversion code sets, the preferred first.
    pub conversion: Vec<u32>,
}

/// The code sets of one side: the content of TAG_CODE_SETS (component 1).
///
/// ```text
/// component_data, an encapsulation:
///   0 byte order | 4 unsigned long native | unsigned long n, n x unsigned long     for char
///                |   unsigned long native | unsigned long n, n x unsigned long     for wchar
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CodeSetInfo {
    /// The code sets for char and string.
    pub char: CodeSetComponent,
    /// The code sets for wchar and wstring.
    pub wchar: CodeSetComponent,
}

impl CodeSetInfo {
    /// Returns Corelane's code sets: for char ISO 8859-1 and UTF-8, of which one is `native`, and
    /// for wchar UTF-16.
    #[must_use]
    pub fn for_native(native: CharSet) -> CodeSetInfo {
        let other = match native {
            CharSet::Latin1 => CharSet::Utf8,
            CharSet::Utf8 => CharSet::Latin1,
        };
        CodeSetInfo {
            char: CodeSetComponent { native: native.id(), conversion: vec![other.id()] },
            wchar: CodeSetComponent { native: id::UTF_16, conversion: Vec::new() },
        }
    }

    /// Parses the component's data.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed.
    pub fn parse(data: &[u8]) -> Result<CodeSetInfo, CdrError> {
        CodeSetInfo::decode(&mut Decoder::for_encapsulation(data)?)
    }
}

impl Cdr for CodeSetComponent {
    const MIN_SIZE: usize = 8;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_u32(self.native);
        self.conversion.encode(e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<CodeSetComponent, CdrError> {
        Ok(CodeSetComponent { native: d.read_u32()?, conversion: Vec::decode(d)? })
    }
}

impl Cdr for CodeSetInfo {
    const MIN_SIZE: usize = 16;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        self.char.encode(e)?;
        self.wchar.encode(e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<CodeSetInfo, CdrError> {
        Ok(CodeSetInfo { char: CodeSetComponent::decode(d)?, wchar: CodeSetComponent::decode(d)? })
    }
}

/// The failure to agree on a code set for char: CODESET_INCOMPATIBLE minor 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCommonCodeSet;

/// Chooses the transmission code sets of a new connection from the client's code sets and the code
/// sets in the server's reference. The first applicable rule of this list chooses the code set for
/// char, and by the same list the code set for wchar:
///
/// 1. the native set, if both have the same;
/// 2. the server's native set, if the client can convert it;
/// 3. the client's native set, if the server can convert it;
/// 4. the first of the server's conversion sets that is also one of the client's;
/// 5. the fallback that every ORB must support: UTF-8, or UTF-16 for wchar.
///
/// The result has no code set for wchar if the server's reference names none, if the client has no
/// native code set for wchar, or if Corelane does not support the chosen code set.
///
/// # Errors
/// [`NoCommonCodeSet`] if the server names no code set for char, the client has no native code set,
/// or Corelane does not support the chosen code set.
pub fn negotiate(
    client: &CodeSetInfo,
    server: &CodeSetInfo,
    wide_order: WideByteOrder,
) -> Result<CodeSets, NoCommonCodeSet> {
    let char = choose(&client.char, &server.char, id::UTF_8).and_then(CharSet::from_id).ok_or(NoCommonCodeSet)?;
    let wchar =
        choose(&client.wchar, &server.wchar, id::UTF_16).and_then(WideCodeSet::from_id).unwrap_or(WideCodeSet::None);
    Ok(CodeSets { char, wchar, wide_order })
}

fn choose(client: &CodeSetComponent, server: &CodeSetComponent, fall_back: u32) -> Option<u32> {
    if (server.native == 0 && server.conversion.is_empty()) || client.native == 0 {
        return None;
    }
    if client.native == server.native || client.conversion.contains(&server.native) {
        return Some(server.native);
    }
    if server.conversion.contains(&client.native) {
        return Some(client.native);
    }
    let common = server.conversion.iter().find(|set| client.conversion.contains(set));
    Some(common.copied().unwrap_or(fall_back))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(native: u32, conversion: &[u32], wide: u32) -> CodeSetInfo {
        CodeSetInfo {
            char: CodeSetComponent { native, conversion: conversion.to_vec() },
            wchar: CodeSetComponent { native: wide, conversion: Vec::new() },
        }
    }

    #[test]
    fn first_applicable_rule_chooses_the_code_set() {
        let chosen = |native, server: &CodeSetInfo| {
            negotiate(&CodeSetInfo::for_native(native), server, WideByteOrder::SpecifiedOrder).map(|sets| sets.char)
        };
        let latin1 = info(id::ISO_8859_1, &[], id::UTF_16);
        let both = info(id::ISO_8859_1, &[id::UTF_8], id::UTF_16);
        let others = info(0x0001_000f, &[0x0001_0020, id::ISO_8859_1], id::UTF_16);
        assert_eq!(chosen(CharSet::Latin1, &latin1), Ok(CharSet::Latin1));
        assert_eq!(chosen(CharSet::Utf8, &latin1), Ok(CharSet::Latin1));
        assert_eq!(chosen(CharSet::Utf8, &both), Ok(CharSet::Latin1));
        assert_eq!(chosen(CharSet::Latin1, &others), Ok(CharSet::Latin1));
        assert_eq!(chosen(CharSet::Utf8, &others), Ok(CharSet::Latin1));
        assert_eq!(chosen(CharSet::Latin1, &info(0x0001_000f, &[], 0)), Ok(CharSet::Utf8));
        assert_eq!(chosen(CharSet::Latin1, &info(0, &[], 0)), Err(NoCommonCodeSet));
    }

    #[test]
    fn utf_16_is_chosen_if_the_server_has_wide_code_sets() {
        let own = CodeSetInfo::for_native(CharSet::Utf8);
        let chosen = |wide| negotiate(&own, &info(id::UTF_8, &[], wide), WideByteOrder::MessageOrder).unwrap();
        assert_eq!(chosen(0).wchar, WideCodeSet::None);
        assert_eq!(chosen(id::UTF_16).wchar, WideCodeSet::Utf16);
        // The server's native wide code set is UCS-4, so the fallback UTF-16 applies.
        assert_eq!(chosen(0x0001_0106), CodeSets { wide_order: WideByteOrder::MessageOrder, ..CodeSets::UTF8_UTF16 });
    }

    #[test]
    fn component_of_an_omniorb_server_is_parsed() {
        let data = [1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 5, 9, 1, 1, 0, 1, 0, 0, 0, 9, 1, 1, 0];
        let info = CodeSetInfo::parse(&data).unwrap();
        assert_eq!((info.char.native, info.char.conversion.as_slice()), (id::ISO_8859_1, [0x0501_0001].as_slice()));
        assert_eq!(info.wchar.native, id::UTF_16);
        let mut e = Encoder::new();
        e.set_endian(crate::Endian::Little);
        e.write_encapsulation(|e| info.encode(e)).unwrap();
        assert_eq!(e.into_reusable_buffer()[4..], data);
    }
}
