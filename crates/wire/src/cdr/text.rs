//! Characters and strings, narrow and wide, and their conversion from and to transmission code
//! sets.

use std::borrow::Cow;

use bumpalo::Bump;
use bumpalo::collections::String as BumpString;

use super::{CdrError, Decoder, Encoder, Endian};
use crate::codeset::{CharSet, WideByteOrder, WideCodeSet};
use crate::giop::WideForm;

impl Encoder<'_> {
    /// Writes a char: one octet of the code set for char.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] for a character that is not one octet in that code set.
    pub fn write_char(&mut self, value: char) -> Result<(), CdrError> {
        let octet = u8::try_from(value).map_err(|_| CdrError::CharacterNotInCodeSet)?;
        if octet >= 0x80 && self.code_sets().char == CharSet::Utf8 {
            return Err(CdrError::CharacterNotInCodeSet);
        }
        self.write_u8(octet);
        Ok(())
    }

    /// Writes a string in the code set for char.
    ///
    /// # Errors
    /// [`CdrError::NulInString`]; [`CdrError::CharacterNotInCodeSet`]; [`CdrError::LengthOverflow`]
    /// if the length does not fit in 32 bits.
    #[inline]
    pub fn write_str(&mut self, value: &str) -> Result<(), CdrError> {
        self.write_bounded_str(value, u32::MAX)
    }

    /// Writes a bounded string. The bound counts the octets that are sent, without the NUL; in
    /// ISO 8859-1 each character is one octet.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`write_str`](Encoder::write_str).
    pub fn write_bounded_str(&mut self, value: &str, bound: u32) -> Result<(), CdrError> {
        self.write_narrow(value, bound, self.code_sets().char)
    }

    /// Writes a string that is in ISO 8859-1 regardless of the negotiated code set, such as a
    /// repository id.
    ///
    /// # Errors
    /// [`CdrError::NulInString`]; [`CdrError::CharacterNotInCodeSet`]; [`CdrError::LengthOverflow`]
    /// if the length does not fit in 32 bits.
    pub fn write_latin1_str(&mut self, value: &str) -> Result<(), CdrError> {
        self.write_narrow(value, u32::MAX, CharSet::Latin1)
    }

    fn write_narrow(&mut self, value: &str, bound: u32, set: CharSet) -> Result<(), CdrError> {
        let octets = value.as_bytes();
        let (mut nul, mut union) = (false, 0);
        for octet in octets {
            nul |= *octet == 0;
            union |= octet;
        }
        if nul {
            return Err(CdrError::NulInString);
        }
        if union >= 0x80 && set == CharSet::Latin1 {
            return self.write_converted(value, bound);
        }
        if octets.len() > bound as usize {
            return Err(CdrError::StringOverBound);
        }
        self.write_len(octets.len() + 1)?;
        let buffer = self.buffer_mut();
        buffer.reserve(octets.len() + 1);
        buffer.extend_from_slice(octets);
        buffer.push(0);
        Ok(())
    }

    #[cold]
    fn write_converted(&mut self, value: &str, bound: u32) -> Result<(), CdrError> {
        let len = value.chars().count();
        if len > bound as usize {
            return Err(CdrError::StringOverBound);
        }
        self.write_len(len + 1)?;
        self.buffer_mut().reserve(len + 1);
        for character in value.chars() {
            match u8::try_from(character) {
                Ok(octet) => self.buffer_mut().push(octet),
                Err(_) => return Err(CdrError::CharacterNotInCodeSet),
            }
        }
        self.write_u8(0);
        Ok(())
    }

    fn check_wide(&self) -> Result<(), CdrError> {
        match (self.version().wide_form(), self.code_sets().wchar, self.is_written_by_server()) {
            (WideForm::Absent, _, false) => Err(CdrError::WideInGiop10Request),
            (WideForm::Absent, _, true) => Err(CdrError::WideInGiop10Reply),
            (_, WideCodeSet::None, false) => Err(CdrError::NoWideCodeSetInReference),
            (_, WideCodeSet::None, true) => Err(CdrError::NoWideCodeSet),
            (_, WideCodeSet::Utf16, _) => Ok(()),
        }
    }

    fn wide_order(&self) -> Endian {
        match self.code_sets().wide_order {
            WideByteOrder::SpecifiedOrder => Endian::Big,
            WideByteOrder::MessageOrder => self.endian(),
        }
    }

    /// Writes a wchar.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] for a character that takes two UTF-16 units. If wide
    /// data cannot be sent: [`CdrError::WideInGiop10Request`], [`CdrError::WideInGiop10Reply`],
    /// [`CdrError::NoWideCodeSet`], [`CdrError::NoWideCodeSetInReference`].
    pub fn write_wchar(&mut self, value: char) -> Result<(), CdrError> {
        self.check_wide()?;
        let unit = u16::try_from(u32::from(value)).map_err(|_| CdrError::CharacterNotInCodeSet)?;
        if self.version().wide_form() == WideForm::Units {
            self.write_u16(unit);
        } else {
            self.write_u8(2);
            self.write_bytes(&ordered(unit, self.wide_order()));
        }
        Ok(())
    }

    /// Writes a wstring.
    ///
    /// # Errors
    /// [`CdrError::NulInString`]; [`CdrError::LengthOverflow`] if the length does not fit in 32
    /// bits; if wide data cannot be sent, the errors of [`write_wchar`](Encoder::write_wchar).
    pub fn write_wstr(&mut self, value: &str) -> Result<(), CdrError> {
        self.write_bounded_wstr(value, u32::MAX)
    }

    /// Writes a bounded wstring. The bound counts UTF-16 code units of the text.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`write_wstr`](Encoder::write_wstr).
    pub fn write_bounded_wstr(&mut self, value: &str, bound: u32) -> Result<(), CdrError> {
        self.check_wide()?;
        if value.as_bytes().contains(&0) {
            return Err(CdrError::NulInString);
        }
        let old = self.version().wide_form() == WideForm::Units;
        let order = if old { self.endian() } else { self.wide_order() };
        self.write_u32(0);
        let start = self.buffer_mut().len();
        self.buffer_mut().reserve((value.len() + 1) * 2);
        let marked = !old && value.starts_with(LIKE_MARKS);
        if marked {
            self.buffer_mut().extend_from_slice(&ordered(MARK, order));
        }
        let mut units = 0usize;
        for unit in value.encode_utf16() {
            units += 1;
            self.buffer_mut().extend_from_slice(&ordered(unit, order));
        }
        if units > bound as usize {
            return Err(CdrError::StringOverBound);
        }
        let count = if old {
            self.write_bytes(&[0; 2]);
            units + 1
        } else {
            (units + usize::from(marked)) * 2
        };
        self.patch_at_buffer(start - 4, u32::try_from(count).map_err(|_| CdrError::LengthOverflow)?);
        Ok(())
    }

    /// Returns true if the octets of wide text in `d` mean the same text in this encoder. Before
    /// GIOP 1.2 wide text is aligned, so the result is false.
    pub(crate) fn has_wide_form_of(&self, d: &Decoder<'_>) -> bool {
        let (own, other) = (self.code_sets(), d.code_sets());
        let order = own.wide_order == WideByteOrder::SpecifiedOrder || self.endian() == d.endian();
        self.version() == d.version()
            && self.version().wide_form() == WideForm::Octets
            && (own.wchar, own.wide_order) == (other.wchar, other.wide_order)
            && order
    }

    /// Copies the wchar at `d` unchanged, after [`has_wide_form_of`](Encoder::has_wide_form_of) has
    /// returned true.
    pub(crate) fn copy_wchar(&mut self, d: &mut Decoder<'_>) -> Result<(), CdrError> {
        let mut octets = d.clone();
        d.read_wchar()?;
        let len = octets.read_u8()?;
        self.write_u8(len);
        self.write_bytes(octets.read_bytes(usize::from(len))?);
        Ok(())
    }

    /// Copies the wstring at `d` unchanged, after [`has_wide_form_of`](Encoder::has_wide_form_of)
    /// has returned true.
    pub(crate) fn copy_wstr(&mut self, d: &mut Decoder<'_>, bound: u32) -> Result<(), CdrError> {
        let mut octets = d.clone();
        d.wide_octets(bound)?;
        let len = octets.read_u32()?;
        self.write_u32(len);
        self.write_bytes(octets.read_bytes(len as usize)?);
        Ok(())
    }
}

const MARK: u16 = 0xfeff;

/// Characters that a reader mistakes for a byte-order mark if text begins with them.
const LIKE_MARKS: [char; 2] = ['\u{feff}', '\u{fffe}'];

#[inline]
fn ordered(unit: u16, order: Endian) -> [u8; 2] {
    match order {
        Endian::Big => unit.to_be_bytes(),
        Endian::Little => unit.to_le_bytes(),
    }
}

impl<'m> Decoder<'m> {
    /// Reads a char.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] for an octet that is not a character of the code set,
    /// [`CdrError::Truncated`].
    pub fn read_char(&mut self) -> Result<char, CdrError> {
        let octet = self.read_u8()?;
        if octet >= 0x80 && self.code_sets().char == CharSet::Utf8 {
            return Err(CdrError::CharacterNotInCodeSet);
        }
        Ok(char::from(octet))
    }

    /// Reads the octets of a string without its NUL, unconverted. Length 0, which some ORBs send
    /// for an empty string, is accepted.
    ///
    /// # Errors
    /// [`CdrError::StringNotTerminated`], [`CdrError::LimitExceeded`], [`CdrError::Truncated`].
    #[inline]
    pub fn read_str_octets(&mut self) -> Result<&'m [u8], CdrError> {
        let len = self.read_u32()?;
        if len > self.limits().max_string_length {
            return Err(CdrError::LimitExceeded);
        }
        match self.read_bytes(len as usize)? {
            [octets @ .., 0] => Ok(octets),
            [] => Ok(&[]),
            _ => Err(CdrError::StringNotTerminated),
        }
    }

    /// Reads a string. UTF-8 is borrowed, and so is ISO 8859-1 with ASCII characters only. Other
    /// ISO 8859-1 text is converted into the arena ([`Scratch`](crate::Scratch)).
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] if the code set is UTF-8 and the octets are not UTF-8;
    /// [`CdrError::MissingScratch`] if conversion is needed and there is no arena; the errors of
    /// [`read_str_octets`](Decoder::read_str_octets) and of [`charge`](Decoder::charge).
    #[inline]
    pub fn read_str(&mut self) -> Result<&'m str, CdrError> {
        let octets = self.read_str_octets()?;
        self.borrowed_text(octets, self.code_sets().char)
    }

    /// Reads a bounded string. The bound counts the octets that were sent, without the NUL.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`read_str`](Decoder::read_str).
    pub fn read_bounded_str(&mut self, bound: u32) -> Result<&'m str, CdrError> {
        let octets = self.bounded_octets(bound)?;
        self.borrowed_text(octets, self.code_sets().char)
    }

    /// Reads a string into a `String`.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`], and the errors of
    /// [`read_str_octets`](Decoder::read_str_octets) and of [`charge`](Decoder::charge).
    #[inline]
    pub fn read_string(&mut self) -> Result<String, CdrError> {
        let octets = self.read_str_octets()?;
        self.owned_text(octets, self.code_sets().char)
    }

    /// Reads a bounded string into a `String`.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`read_string`](Decoder::read_string).
    pub fn read_bounded_string(&mut self, bound: u32) -> Result<String, CdrError> {
        let octets = self.bounded_octets(bound)?;
        self.owned_text(octets, self.code_sets().char)
    }

    /// Reads a string that is in ISO 8859-1 regardless of the negotiated code set, such as a
    /// repository id.
    ///
    /// # Errors
    /// The errors of [`read_str_octets`](Decoder::read_str_octets) and of
    /// [`charge`](Decoder::charge).
    pub fn read_latin1_string(&mut self) -> Result<String, CdrError> {
        let octets = self.read_str_octets()?;
        self.owned_text(octets, CharSet::Latin1)
    }

    fn owned_text(&mut self, octets: &[u8], set: CharSet) -> Result<String, CdrError> {
        // A non-ASCII octet of ISO 8859-1 becomes two bytes of UTF-8.
        self.charge_block(if set == CharSet::Latin1 { octets.len().saturating_mul(2) } else { octets.len() })?;
        text(octets, set).map(Cow::into_owned)
    }

    fn bounded_octets(&mut self, bound: u32) -> Result<&'m [u8], CdrError> {
        let octets = self.read_str_octets()?;
        if octets.len() > bound as usize { Err(CdrError::StringOverBound) } else { Ok(octets) }
    }

    #[inline]
    fn borrowed_text(&mut self, octets: &'m [u8], set: CharSet) -> Result<&'m str, CdrError> {
        if set == CharSet::Latin1 && !octets.is_ascii() {
            return self.converted(octets);
        }
        std::str::from_utf8(octets).map_err(|_| CdrError::CharacterNotInCodeSet)
    }

    #[cold]
    fn converted(&mut self, octets: &[u8]) -> Result<&'m str, CdrError> {
        let beyond_ascii = octets.iter().filter(|octet| !octet.is_ascii()).count();
        self.charge(octets.len() + beyond_ascii)?;
        let mut text = BumpString::with_capacity_in(octets.len() + beyond_ascii, self.bump()?);
        text.extend(octets.iter().map(|octet| char::from(*octet)));
        Ok(text.into_bump_str())
    }

    fn bump(&self) -> Result<&'m Bump, CdrError> {
        Ok(self.scratch().ok_or(CdrError::MissingScratch)?.bump())
    }

    fn check_wide(&self) -> Result<(), CdrError> {
        match (self.version().wide_form(), self.code_sets().wchar, self.is_written_by_server()) {
            (WideForm::Absent, _, false) => Err(CdrError::WideInGiop10Request),
            (WideForm::Absent, _, true) => Err(CdrError::WideInGiop10Reply),
            (_, WideCodeSet::None, _) => Err(CdrError::NoWideCodeSet),
            (_, WideCodeSet::Utf16, _) => Ok(()),
        }
    }

    /// Reads a wchar.
    ///
    /// # Errors
    /// [`CdrError::BadWideStringLength`] for a length that is not the length of one character;
    /// [`CdrError::CharacterNotInCodeSet`] for half of a surrogate pair;
    /// [`CdrError::WideInGiop10Request`], [`CdrError::WideInGiop10Reply`],
    /// [`CdrError::NoWideCodeSet`] if wide data is not possible; [`CdrError::Truncated`].
    pub fn read_wchar(&mut self) -> Result<char, CdrError> {
        self.check_wide()?;
        let unit = if self.version().wide_form() == WideForm::Units {
            self.read_u16()?
        } else {
            let len = self.read_u8()?;
            let octets = self.read_bytes(usize::from(len))?;
            // A wchar of two octets is a character, never a mark.
            let (octets, order) =
                if octets.len() == 2 { (octets, self.wide_order()) } else { self.without_mark(octets) };
            let unit: [u8; 2] = octets.try_into().map_err(|_| CdrError::BadWideStringLength)?;
            in_order(unit, order)
        };
        char::from_u32(u32::from(unit)).ok_or(CdrError::CharacterNotInCodeSet)
    }

    fn without_mark<'o>(&self, octets: &'o [u8]) -> (&'o [u8], Endian) {
        match octets {
            [0xfe, 0xff, text @ ..] => (text, Endian::Big),
            [0xff, 0xfe, text @ ..] => (text, Endian::Little),
            text => (text, self.wide_order()),
        }
    }

    fn wide_order(&self) -> Endian {
        match self.code_sets().wide_order {
            WideByteOrder::SpecifiedOrder => Endian::Big,
            WideByteOrder::MessageOrder => self.endian(),
        }
    }

    /// Reads a wstring. Returns its code units as octets, without byte-order mark and terminator,
    /// and their byte order.
    pub(crate) fn wide_octets(&mut self, bound: u32) -> Result<(&'m [u8], Endian), CdrError> {
        self.check_wide()?;
        let len = self.read_u32()?;
        if len > self.limits().max_string_length {
            return Err(CdrError::LimitExceeded);
        }
        let (octets, order) = if self.version().wide_form() == WideForm::Units {
            let octets = self.read_bytes(len as usize * 2)?;
            match octets {
                [] => (octets, self.endian()),
                [units @ .., 0, 0] => (units, self.endian()),
                _ => return Err(CdrError::StringNotTerminated),
            }
        } else {
            let octets = self.read_bytes(len as usize)?;
            self.without_mark(octets)
        };
        if !octets.len().is_multiple_of(2) {
            return Err(CdrError::BadWideStringLength);
        }
        if octets.len() / 2 > bound as usize { Err(CdrError::StringOverBound) } else { Ok((octets, order)) }
    }

    /// Reads a wstring into the arena ([`Scratch`](crate::Scratch)).
    ///
    /// # Errors
    /// [`CdrError::MissingScratch`] if the decoder has no arena, and the errors of
    /// [`read_wstring`](Decoder::read_wstring).
    pub fn read_wstr(&mut self) -> Result<&'m str, CdrError> {
        self.read_bounded_wstr(u32::MAX)
    }

    /// Reads a bounded wstring into the arena ([`Scratch`](crate::Scratch)). The bound counts
    /// UTF-16 code units.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`read_wstr`](Decoder::read_wstr).
    pub fn read_bounded_wstr(&mut self, bound: u32) -> Result<&'m str, CdrError> {
        let (octets, order) = self.wide_octets(bound)?;
        // Two octets of UTF-16 become at most three bytes of UTF-8.
        self.charge(octets.len() / 2 * 3)?;
        let mut text = BumpString::with_capacity_in(octets.len() / 2 * 3, self.bump()?);
        for character in characters(octets, order) {
            text.push(character?);
        }
        Ok(text.into_bump_str())
    }

    /// Reads a wstring into a `String`.
    ///
    /// # Errors
    /// [`CdrError::CharacterNotInCodeSet`] for octets that are not UTF-16;
    /// [`CdrError::BadWideStringLength`] for an odd number of octets;
    /// [`CdrError::StringNotTerminated`], [`CdrError::LimitExceeded`], [`CdrError::Truncated`]; the
    /// errors of [`charge`](Decoder::charge); if wide data is not possible, the errors of
    /// [`read_wchar`](Decoder::read_wchar).
    pub fn read_wstring(&mut self) -> Result<String, CdrError> {
        self.read_bounded_wstring(u32::MAX)
    }

    /// Reads a bounded wstring into a `String`. The bound counts UTF-16 code units.
    ///
    /// # Errors
    /// [`CdrError::StringOverBound`], and the errors of [`read_wstring`](Decoder::read_wstring).
    pub fn read_bounded_wstring(&mut self, bound: u32) -> Result<String, CdrError> {
        let (octets, order) = self.wide_octets(bound)?;
        self.charge_block(octets.len() / 2 * 3)?;
        characters(octets, order).collect()
    }
}

#[inline]
fn in_order(unit: [u8; 2], order: Endian) -> u16 {
    match order {
        Endian::Big => u16::from_be_bytes(unit),
        Endian::Little => u16::from_le_bytes(unit),
    }
}

fn characters(octets: &[u8], order: Endian) -> impl Iterator<Item = Result<char, CdrError>> {
    let units = octets.chunks_exact(2).filter_map(|unit| unit.first_chunk()).map(move |unit| in_order(*unit, order));
    char::decode_utf16(units).map(|character| character.map_err(|_| CdrError::CharacterNotInCodeSet))
}

#[inline]
pub(crate) fn text(octets: &[u8], set: CharSet) -> Result<Cow<'_, str>, CdrError> {
    if set == CharSet::Latin1 && !octets.is_ascii() {
        return Ok(Cow::Owned(octets.iter().map(|octet| char::from(*octet)).collect()));
    }
    std::str::from_utf8(octets).map(Cow::Borrowed).map_err(|_| CdrError::CharacterNotInCodeSet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::giop::Version;
    use crate::{CodeSets, Limits, Scratch};

    fn encoder(version: Version, code_sets: CodeSets, endian: Endian) -> Encoder<'static> {
        let mut e = Encoder::new();
        e.set_version(version);
        e.set_code_sets(code_sets);
        e.set_endian(endian);
        e
    }

    #[test]
    fn length_of_a_string_counts_octets_and_the_nul() {
        let mut e = encoder(Version::GIOP_1_2, CodeSets::UTF8_UTF16, Endian::Big);
        e.write_str("é").unwrap();
        assert_eq!(e.into_reusable_buffer(), [0, 0, 0, 3, 0xc3, 0xa9, 0]);
        let mut e = encoder(Version::GIOP_1_2, CodeSets::DEFAULT, Endian::Big);
        e.write_str("é").unwrap();
        e.write_bounded_str("é", 1).unwrap();
        let octets = e.to_vec();
        assert_eq!(octets, [0, 0, 0, 2, 0xe9, 0, 0, 0, 0, 0, 0, 2, 0xe9, 0]);
        let scratch = Scratch::new();
        let mut d = Decoder::new(&octets, Endian::Big).with_scratch(&scratch);
        assert_eq!((d.read_str(), d.read_string()), (Ok("é"), Ok("é".to_owned())));
        assert_eq!(Decoder::new(&octets, Endian::Big).read_str(), Err(CdrError::MissingScratch));
        assert_eq!(e.write_str("€"), Err(CdrError::CharacterNotInCodeSet));
        assert_eq!(e.write_str("a\0"), Err(CdrError::NulInString));
        assert_eq!(e.write_str("é\0"), Err(CdrError::NulInString));
        assert_eq!(e.write_bounded_str("abc", 2), Err(CdrError::StringOverBound));
        assert_eq!(e.write_bounded_str("éé", 1), Err(CdrError::StringOverBound));
    }

    #[test]
    fn malformed_received_strings_are_refused() {
        let read = |octets: &[u8]| Decoder::new(octets, Endian::Big).read_string();
        assert_eq!(read(&[0, 0, 0, 0]), Ok(String::new()));
        assert_eq!(read(&[0, 0, 0, 1, 0]), Ok(String::new()));
        assert_eq!(read(&[0, 0, 0, 1, b'a']), Err(CdrError::StringNotTerminated));
        assert_eq!(read(&[0, 0, 0, 9, b'a', 0]), Err(CdrError::Truncated));
        let utf8 = |octets| Decoder::new(octets, Endian::Big).with_code_sets(CodeSets::UTF8_UTF16).read_string();
        assert_eq!(utf8(&[0, 0, 0, 2, 0xff, 0]), Err(CdrError::CharacterNotInCodeSet));
        let limits = Limits { max_string_length: 1, ..Limits::default() };
        let mut d = Decoder::new(&[0, 0, 0, 2, b'a', 0], Endian::Big).with_limits(&limits);
        assert_eq!(d.read_str(), Err(CdrError::LimitExceeded));
        let mut d = Decoder::new(&[0, 0, 0, 2, b'a', 0], Endian::Big);
        assert_eq!(d.read_bounded_str(0), Err(CdrError::StringOverBound));
    }

    #[test]
    fn chars_are_one_octet() {
        let mut e = encoder(Version::GIOP_1_2, CodeSets::UTF8_UTF16, Endian::Big);
        assert_eq!((e.write_char('a'), e.write_char('é')), (Ok(()), Err(CdrError::CharacterNotInCodeSet)));
        let mut e = encoder(Version::GIOP_1_2, CodeSets::DEFAULT, Endian::Big);
        assert_eq!((e.write_char('é'), e.write_char('€')), (Ok(()), Err(CdrError::CharacterNotInCodeSet)));
        let octets = e.into_reusable_buffer();
        assert_eq!(Decoder::new(&octets, Endian::Big).read_char(), Ok('é'));
        let mut d = Decoder::new(&octets, Endian::Big).with_code_sets(CodeSets::UTF8_UTF16);
        assert_eq!(d.read_char(), Err(CdrError::CharacterNotInCodeSet));
    }

    #[test]
    fn wide_text_of_giop_1_2_is_big_endian_without_a_mark() {
        let mut e = encoder(Version::GIOP_1_2, CodeSets::LATIN1_UTF16, Endian::Little);
        e.write_wstr("h€").unwrap();
        e.write_wchar('€').unwrap();
        e.write_wstr("").unwrap();
        let octets = e.into_reusable_buffer();
        assert_eq!(octets, [4, 0, 0, 0, 0, 0x68, 0x20, 0xac, 2, 0x20, 0xac, 0, 0, 0, 0, 0]);
        let scratch = Scratch::new();
        let mut d = Decoder::new(&octets, Endian::Little).with_code_sets(CodeSets::LATIN1_UTF16).with_scratch(&scratch);
        assert_eq!((d.read_wstr(), d.read_wchar(), d.read_wstring()), (Ok("h€"), Ok('€'), Ok(String::new())));
    }

    #[test]
    fn byte_order_marks_are_followed_and_removed() {
        let octets = [0, 0, 0, 6, 0xff, 0xfe, 0x68, 0, 0xac, 0x20, 4, 0xfe, 0xff, 0x20, 0xac, 0, 0, 0, 0, 2, 0x68, 0];
        let sets = CodeSets { wide_order: WideByteOrder::MessageOrder, ..CodeSets::LATIN1_UTF16 };
        for sets in [sets, CodeSets::LATIN1_UTF16] {
            let mut d = Decoder::new(&octets, Endian::Big).with_code_sets(sets);
            assert_eq!((d.read_wstring().unwrap().as_str(), d.read_wchar()), ("h€", Ok('€')));
        }
    }

    #[test]
    fn wide_text_in_the_senders_byte_order_is_read_from_a_known_peer() {
        let sets = CodeSets { wide_order: WideByteOrder::MessageOrder, ..CodeSets::LATIN1_UTF16 };
        let mut e = encoder(Version::GIOP_1_2, sets, Endian::Little);
        e.write_wstr("h").unwrap();
        let octets = e.into_reusable_buffer();
        assert_eq!(octets, [2, 0, 0, 0, 0x68, 0]);
        assert_eq!(Decoder::new(&octets, Endian::Little).with_code_sets(sets).read_wstring().unwrap(), "h");
    }

    #[test]
    fn wide_text_of_giop_1_1_is_fixed_width_and_terminated() {
        let mut e = encoder(Version::GIOP_1_1, CodeSets::LATIN1_UTF16, Endian::Little);
        e.write_u8(1);
        e.write_wchar('h').unwrap();
        e.write_wstr("h€").unwrap();
        let octets = e.into_reusable_buffer();
        assert_eq!(octets, [1, 0, 0x68, 0, 3, 0, 0, 0, 0x68, 0, 0xac, 0x20, 0, 0]);
        let d = Decoder::new(&octets, Endian::Little).with_version(Version::GIOP_1_1).at_position(1);
        let mut d = d.with_code_sets(CodeSets::LATIN1_UTF16);
        assert_eq!((d.read_wchar(), d.read_wstring().unwrap().as_str()), (Ok('h'), "h€"));
    }

    #[test]
    fn wide_text_without_a_code_set_or_in_giop_1_0_is_refused() {
        let mut e = encoder(Version::GIOP_1_0, CodeSets::LATIN1_UTF16, Endian::Big);
        assert_eq!(e.write_wchar('a'), Err(CdrError::WideInGiop10Request));
        e.set_written_by_server(true);
        assert_eq!(e.write_wstr("a"), Err(CdrError::WideInGiop10Reply));
        e.set_version(Version::GIOP_1_2);
        e.set_code_sets(CodeSets::DEFAULT);
        assert_eq!(e.write_wstr("a"), Err(CdrError::NoWideCodeSet));
        e.set_written_by_server(false);
        assert_eq!(e.write_wstr("a"), Err(CdrError::NoWideCodeSetInReference));
        assert_eq!(Decoder::new(&[0; 8], Endian::Big).read_wchar(), Err(CdrError::NoWideCodeSet));
        let read = |octets| Decoder::new(octets, Endian::Big).with_code_sets(CodeSets::LATIN1_UTF16);
        assert_eq!(read(&[0, 0, 0, 1, 0]).read_wstring(), Err(CdrError::BadWideStringLength));
        assert_eq!(read(&[0, 0, 0, 2, 0xd8, 0]).read_wstring(), Err(CdrError::CharacterNotInCodeSet));
        assert_eq!(read(&[3, 0, 0, 2]).read_wchar(), Err(CdrError::BadWideStringLength));
        assert_eq!(read(&[0, 0, 0, 4, 0, 1, 0, 2]).read_bounded_wstring(1), Err(CdrError::StringOverBound));
    }
}
