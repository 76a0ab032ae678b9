//! Going over a value by its type: to skip it, or to write it again in another form.

use super::Arms;
use crate::cdr::{Cdr, CdrError, Decoder, Encoder};
use crate::typecode::{Kind, TypeCode, View, read_label, write_label};

/// Reads a value of a type, and writes it again if there is somewhere to write.
///
/// # Errors
/// Where the octets are no such value, or the value has no form in the code sets of the encoder.
pub(crate) fn transfer(view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    let mut walk = Walk { start: d.remaining(), steps: 0, depth: 0, arms: Arms::default() };
    walk.value(view, d, out)
}

/// Steps without octets that any value may take.
const FREE_STEPS: usize = 512;
/// Steps that an octet pays for.
const STEPS_PER_OCTET: usize = 4;

struct Walk {
    /// Octets that were left at the start.
    start: usize,
    steps: usize,
    depth: u32,
    arms: Arms,
}

impl Walk {
    /// One step: parts of values can take no octets at all, and be many.
    fn step(&mut self, d: &Decoder<'_>) -> Result<(), CdrError> {
        self.steps += 1;
        let paid = (self.start - d.remaining()).saturating_mul(STEPS_PER_OCTET);
        if self.steps > paid.saturating_add(FREE_STEPS) { Err(CdrError::OverLimit) } else { Ok(()) }
    }

    fn value(&mut self, view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        self.step(d)?;
        let view = view.resolved();
        match view.kind() {
            Kind::Null | Kind::Void => Ok(()),
            Kind::Struct => self.deeper(d, |walk, d| walk.members(view, d, out)),
            Kind::Except => {
                // An exception has its repository id in front, as in a reply.
                let id = d.read_latin1_string()?;
                let mut out = out;
                if let Some(e) = out.as_deref_mut() {
                    e.write_latin1_str(&id)?;
                }
                self.deeper(d, |walk, d| walk.members(view, d, out))
            }
            Kind::Union => self.deeper(d, |walk, d| walk.union(view, d, out)),
            Kind::Sequence => d.nested(|d| self.deeper(d, |walk, d| walk.sequence(view, d, out))),
            Kind::Array => {
                let element = view.content().ok_or(CdrError::BadType)?;
                self.deeper(d, |walk, d| walk.elements(view.length() as usize, element, d, out))
            }
            Kind::Any => d.nested(|d| self.deeper(d, |walk, d| walk.any(d, out))),
            _ => leaf(view, d, out),
        }
    }

    /// Structures nest as their types do, and values as theirs: together that may be deep.
    fn deeper<'m>(
        &mut self,
        d: &mut Decoder<'m>,
        parts: impl FnOnce(&mut Self, &mut Decoder<'m>) -> Result<(), CdrError>,
    ) -> Result<(), CdrError> {
        if self.depth >= d.limits().nesting.saturating_mul(4) {
            return Err(CdrError::TooDeep);
        }
        self.depth += 1;
        let result = parts(self, d);
        self.depth -= 1;
        result
    }

    fn members(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        view.members().try_for_each(|member| self.value(member.ty, d, out.as_deref_mut()))
    }

    fn union(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let discriminator = view.content().ok_or(CdrError::BadType)?.resolved();
        let label = read_label(discriminator.kind(), d)?;
        if discriminator.kind() == Kind::Enum
            && usize::try_from(label).is_ok_and(|label| label >= discriminator.member_count())
        {
            return Err(CdrError::EnumRange);
        }
        if let Some(e) = out.as_deref_mut() {
            write_label(discriminator.kind(), label, e)?;
        }
        match self.arms.choose(view, label).and_then(|arm| view.member(arm)) {
            Some(arm) => self.value(arm.ty, d, out),
            None => Ok(()),
        }
    }

    fn sequence(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let len = d.read_len(1)?;
        if view.length() > 0 && len > view.length() as usize {
            return Err(CdrError::SequenceOverBound);
        }
        if let Some(e) = out.as_deref_mut() {
            e.write_len(len)?;
        }
        let element = view.content().ok_or(CdrError::BadType)?;
        self.elements(len, element, d, out)
    }

    fn elements(
        &mut self,
        len: usize,
        element: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        if let Some(size) = number_size(element.resolved().kind()) {
            return numbers(len, size, d, out);
        }
        for _ in 0..len {
            self.value(element, d, out.as_deref_mut())?;
        }
        Ok(())
    }

    fn any(&mut self, d: &mut Decoder<'_>, mut out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        let type_code = TypeCode::decode(d)?;
        if let Some(e) = out.as_deref_mut() {
            type_code.encode(e)?;
        }
        // What is known of unions goes by their place in memory, and these types go when the value is over.
        let arms = std::mem::take(&mut self.arms);
        let result = self.value(type_code.view(), d, out);
        self.arms = arms;
        result
    }
}

/// Octets of numbers, which are copied in bulk.
fn number_size(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Octet | Kind::Boolean => Some(1),
        Kind::Short | Kind::UShort => Some(2),
        Kind::Long | Kind::ULong | Kind::Float => Some(4),
        Kind::LongLong | Kind::ULongLong | Kind::Double => Some(8),
        _ => None,
    }
}

fn numbers(len: usize, size: usize, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    if len == 0 {
        return Ok(());
    }
    let Some(e) = out else {
        d.align(size)?;
        return d.skip(len.checked_mul(size).ok_or(CdrError::Truncated)?);
    };
    match size {
        1 => e.write_raw(d.read_raw(len)?),
        2 => e.write_slice(&d.read_vec::<u16>(len)?),
        4 => e.write_slice(&d.read_vec::<u32>(len)?),
        _ => e.write_slice(&d.read_vec::<u64>(len)?),
    }
    Ok(())
}

/// A value without parts that have types.
fn leaf(view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    let kind = view.kind();
    if let Some(size) = number_size(kind) {
        return numbers(1, size, d, out);
    }
    match kind {
        Kind::LongDouble => {
            let quad = d.read_long_double()?;
            if let Some(e) = out {
                e.write_long_double(quad);
            }
        }
        Kind::Enum => {
            let members = u32::try_from(view.member_count()).map_err(|_| CdrError::TooLong)?;
            let number = d.read_enum(members)?;
            if let Some(e) = out {
                e.write_u32(number);
            }
        }
        Kind::Char | Kind::WChar => return character(kind, d, out),
        Kind::String | Kind::WString => return text(view, d, out),
        Kind::Fixed => {
            let digits = u16::try_from(view.length()).map_err(|_| CdrError::BadFixed)?;
            let octets = d.read_raw(usize::from(digits / 2 + 1))?;
            if let Some(e) = out {
                e.write_raw(octets);
            }
        }
        Kind::TypeCode => {
            let type_code = TypeCode::decode(d)?;
            if let Some(e) = out {
                type_code.encode(e)?;
            }
        }
        Kind::Principal => {
            let octets = d.read_octets()?;
            if let Some(e) = out {
                e.write_octets_copied(octets)?;
            }
        }
        Kind::ObjRef | Kind::Component | Kind::Home => return reference(d, out),
        Kind::AbstractInterface => {
            let is_object = d.read_bool()?;
            if !is_object {
                return Err(CdrError::Unsupported);
            }
            match out {
                Some(e) => {
                    e.write_bool(true);
                    return reference(d, Some(e));
                }
                None => return reference(d, None),
            }
        }
        Kind::LocalInterface => return Err(CdrError::LocalObject),
        Kind::Null => return Err(CdrError::BadType),
        _ => return Err(CdrError::Unsupported),
    }
    Ok(())
}

fn character(kind: Kind, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    match (kind, out) {
        (Kind::Char, None) => d.read_u8().map(drop),
        (_, None) => d.read_wchar().map(drop),
        (Kind::Char, Some(e)) if e.code_sets().char == d.code_sets().char => {
            e.write_u8(d.read_u8()?);
            Ok(())
        }
        (Kind::Char, Some(e)) => e.write_char(d.read_char()?),
        (_, Some(e)) => e.write_wchar(d.read_wchar()?),
    }
}

fn text(view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    let bound = if view.length() == 0 { u32::MAX } else { view.length() };
    match (view.kind(), out) {
        (Kind::WString, None) => d.wide_octets(bound).map(drop),
        (Kind::WString, Some(e)) => e.write_wstr(&d.read_bounded_wstring(bound)?),
        (_, Some(e)) if e.code_sets().char != d.code_sets().char => {
            e.write_bounded_str(&d.read_bounded_string(bound)?, bound)
        }
        (_, out) => {
            let octets = d.read_str_octets()?;
            if octets.len() > bound as usize {
                return Err(CdrError::StringOverBound);
            }
            if let Some(e) = out {
                e.write_len(octets.len() + 1)?;
                e.write_raw(octets);
                e.write_u8(0);
            }
            Ok(())
        }
    }
}

/// An object reference: its profiles are octets, whatever they mean.
fn reference(d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    let ior = crate::Ior::decode(d)?;
    match out {
        Some(e) => ior.encode(e),
        None => Ok(()),
    }
}
