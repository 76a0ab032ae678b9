//! The encoding of TypeCodes.

use std::collections::HashMap;

use super::description::StaticTypeCode;
use super::{INDIRECTION, TypeCode, TypeCodeKind, View};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder};

impl Cdr for TypeCode {
    const MIN_SIZE: usize = 4;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        TypeCodeWriter { written: HashMap::new(), repeated: 0 }.write(self.view(), e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<TypeCode, CdrError> {
        super::decode::read(d)
    }
}

impl StaticTypeCode {
    /// Writes the described type.
    ///
    /// # Errors
    /// [`CdrError`] if a name or a label cannot be encoded.
    pub fn write(&'static self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        TypeCode::from_description(self).encode(e)
    }
}

/// Maximum total size in bytes of the descriptions that one TypeCode repeats, so that a received
/// TypeCode cannot become huge when it is written.
const MAX_REPEATED: usize = 64 << 10;

struct TypeCodeWriter {
    /// Named types in the output. Unnamed types are absent, because some peers do not resolve
    /// indirections to them.
    written: HashMap<usize, WrittenType>,
    repeated: usize,
}

#[derive(Clone, Copy)]
struct WrittenType {
    start: usize,
    len: Option<usize>,
}

impl TypeCodeWriter {
    fn write(&mut self, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        if matches!(view, View::Missing) {
            return Err(CdrError::IncompleteTypeCode);
        }
        e.align(4);
        if let Some(place) = self.written.get(&view.key()).copied()
            && !self.may_repeat(view.kind(), place)
        {
            e.write_u32(INDIRECTION);
            let back = i64::try_from(place.start).unwrap_or(0) - i64::try_from(e.len()).unwrap_or(i64::MAX);
            e.write_i32(i32::try_from(back).map_err(|_| CdrError::LengthOverflow)?);
            return Ok(());
        }
        if !view.kind().has_id() {
            return self.write_description(view, e);
        }
        let start = e.len();
        self.written.insert(view.key(), WrittenType { start, len: None });
        self.write_description(view, e)?;
        self.written.insert(view.key(), WrittenType { start, len: Some(e.len() - start) });
        Ok(())
    }

    /// Returns true if the encoder repeats a description that is in the output, because some peers
    /// refuse an indirection to it ([`TypeCodeKind::is_sent_as_indirection`]). Counts the size of
    /// the repeated description.
    fn may_repeat(&mut self, kind: TypeCodeKind, place: WrittenType) -> bool {
        // A type without a length is still being written, so its occurrence inside itself becomes
        // an indirection, whatever its kind.
        let Some(len) = place.len.filter(|_| !kind.is_sent_as_indirection()) else { return false };
        let repeated = self.repeated + len;
        if repeated > MAX_REPEATED {
            return false;
        }
        self.repeated = repeated;
        true
    }

    fn write_description(&mut self, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let kind = view.kind();
        e.write_u32(kind.number());
        match kind {
            _ if kind.is_basic() => Ok(()),
            TypeCodeKind::String | TypeCodeKind::WString => {
                e.write_u32(view.length());
                Ok(())
            }
            TypeCodeKind::Fixed => {
                e.write_u16(u16::try_from(view.length()).map_err(|_| CdrError::BadTypeCode)?);
                e.write_i16(view.scale());
                Ok(())
            }
            _ => e.write_encapsulation(|e| self.write_parameters(view, e)),
        }
    }

    fn write_parameters(&mut self, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let kind = view.kind();
        if kind.has_id() {
            e.write_latin1_str(view.id())?;
            e.write_latin1_str(view.name())?;
        }
        if matches!(kind, TypeCodeKind::Value | TypeCodeKind::Event) {
            e.write_i16(view.modifier());
            match view.content() {
                Some(base) => self.write(base, e)?,
                None => e.write_u32(TypeCodeKind::Null.number()),
            }
        } else if let Some(content) = view.content() {
            self.write(content, e)?;
        }
        if matches!(kind, TypeCodeKind::Sequence | TypeCodeKind::Array) {
            e.write_u32(view.length());
        }
        if kind == TypeCodeKind::Union {
            e.write_i32(view.default());
        }
        if !kind.has_members() {
            return Ok(());
        }
        e.write_len(view.member_count())?;
        let discriminator = view.content().map(View::unaliased);
        for (index, member) in (0..).zip(view.members()) {
            if let (TypeCodeKind::Union, Some(discriminator)) = (kind, discriminator) {
                let label = if view.default() == index { 0 } else { member.label };
                write_label(discriminator.kind(), label, e)?;
            }
            e.write_latin1_str(member.name)?;
            if kind != TypeCodeKind::Enum {
                self.write(member.ty, e)?;
            }
            if matches!(kind, TypeCodeKind::Value | TypeCodeKind::Event) {
                e.write_i16(member.visibility);
            }
        }
        Ok(())
    }
}

pub(crate) fn write_label(kind: TypeCodeKind, label: i128, e: &mut Encoder<'_>) -> Result<(), CdrError> {
    const BAD: CdrError = CdrError::BadDiscriminator;
    match kind {
        TypeCodeKind::Short => e.write_i16(label.try_into().map_err(|_| BAD)?),
        TypeCodeKind::Long => e.write_i32(label.try_into().map_err(|_| BAD)?),
        TypeCodeKind::LongLong => e.write_i64(label.try_into().map_err(|_| BAD)?),
        TypeCodeKind::UShort => e.write_u16(label.try_into().map_err(|_| BAD)?),
        TypeCodeKind::ULong | TypeCodeKind::Enum => e.write_u32(label.try_into().map_err(|_| BAD)?),
        TypeCodeKind::ULongLong => e.write_u64(label.try_into().map_err(|_| BAD)?),
        // A char label is a character of ISO 8859-1; the code set of the connection applies only to
        // values.
        TypeCodeKind::Boolean | TypeCodeKind::Char | TypeCodeKind::Octet => {
            e.write_u8(label.try_into().map_err(|_| BAD)?)
        }
        TypeCodeKind::WChar => {
            let code = label.try_into().map_err(|_| BAD)?;
            return e.write_wchar(char::from_u32(code).ok_or(BAD)?);
        }
        _ => return Err(BAD),
    }
    Ok(())
}

pub(crate) fn read_label(kind: TypeCodeKind, d: &mut Decoder<'_>) -> Result<i128, CdrError> {
    Ok(match kind {
        TypeCodeKind::Short => d.read_i16()?.into(),
        TypeCodeKind::Long => d.read_i32()?.into(),
        TypeCodeKind::LongLong => d.read_i64()?.into(),
        TypeCodeKind::UShort => d.read_u16()?.into(),
        TypeCodeKind::ULong | TypeCodeKind::Enum => d.read_u32()?.into(),
        TypeCodeKind::ULongLong => d.read_u64()?.into(),
        TypeCodeKind::Boolean => d.read_bool()?.into(),
        TypeCodeKind::Char | TypeCodeKind::Octet => d.read_u8()?.into(),
        TypeCodeKind::WChar => u32::from(d.read_wchar()?).into(),
        _ => return Err(CdrError::BadDiscriminator),
    })
}
