//! Going over a value by its type: to skip it, or to write it again in another form.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::{Arms, read_count};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, ValueHead, ValueStart};
use crate::typecode::{ABSTRACT, Kind, TypeCode, View, read_label, write_label};

/// Reads a value of a type, and writes it again if there is somewhere to write.
///
/// `keep` holds the octets that are read for as long as the encoder may compare addresses in them.
///
/// # Errors
/// Where the octets are no such value, or the value has no form in the code sets of the encoder.
pub(crate) fn transfer(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    keep: &Arc<dyn Any + Send + Sync>,
) -> Result<Met, CdrError> {
    go_over(view, d, out, keep, WideText::AsItCame)
}

/// The same, for comparisons: what means the same is written the same.
///
/// # Errors
/// Those of [`transfer`].
pub(super) fn normalize(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: &mut Encoder<'_>,
    keep: &Arc<dyn Any + Send + Sync>,
) -> Result<(), CdrError> {
    go_over(view, d, Some(out), keep, WideText::Normal).map(drop)
}

fn go_over(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    keep: &Arc<dyn Any + Send + Sync>,
    wide_text: WideText,
) -> Result<Met, CdrError> {
    let mut walk = Walk { steps: 0, paid: 0, depth: 0, arms: Arms::default(), keep, met: Met::default(), wide_text };
    walk.value(view, d, out)?;
    Ok(walk.met)
}

/// How wide text is written again, which UTF-16 has in three forms: with a byte-order mark of either order, and without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WideText {
    /// In the form in which it came, where it means the same there: omniORB's `DynAny::equal` compares octets.
    AsItCame,
    /// Without a mark.
    Normal,
}

/// What was met of values (IDL `valuetype`).
#[derive(Default)]
pub(crate) struct Met {
    pub(crate) values: bool,
    /// Whether one was of an unknown type, and what is known of it is left.
    pub(crate) truncated: bool,
    /// Their types, where the TypeCode does not tell them.
    pub(crate) types: Vec<(Box<str>, TypeCode)>,
}

impl Met {
    pub(super) fn add(&mut self, id: &str, type_code: &TypeCode) {
        if !self.types.iter().any(|(known, _)| **known == *id) {
            self.types.push((id.into(), type_code.clone()));
        }
    }
}

/// Steps without octets that any value may take.
const FREE_STEPS: usize = 512;
/// Steps that a part with octets pays for: itself, and structures around it.
const STEPS_PER_PART: usize = 16;

struct Walk<'k> {
    steps: usize,
    /// Parts that have octets. Octets themselves are not counted: the same value has more or fewer of them in another form, and
    /// what could be read has to be read again after it was written.
    paid: usize,
    depth: u32,
    arms: Arms,
    keep: &'k Arc<dyn Any + Send + Sync>,
    met: Met,
    wide_text: WideText,
}

impl Walk<'_> {
    /// One step: parts of values can take no octets at all, and be many.
    fn step(&mut self) -> Result<(), CdrError> {
        self.steps += 1;
        let paid = self.paid.saturating_mul(STEPS_PER_PART);
        if self.steps > paid.saturating_add(FREE_STEPS) { Err(CdrError::OverLimit) } else { Ok(()) }
    }

    fn pay(&mut self, parts: usize) {
        self.paid = self.paid.saturating_add(parts);
    }

    fn value(&mut self, view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        self.step()?;
        let view = view.resolved();
        match view.kind() {
            Kind::Null | Kind::Void => Ok(()),
            Kind::Struct => self.deeper(d, |walk, d| walk.members(view, d, out)),
            Kind::Except => {
                // An exception has its repository id in front, as in a reply.
                self.pay(1);
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
            Kind::Value | Kind::ValueBox | Kind::Event => {
                d.nested(|d| self.deeper(d, |walk, d| walk.shared(view, d, out)))
            }
            Kind::AbstractInterface => self.either(view, d, out),
            Kind::Any => d.nested(|d| self.deeper(d, |walk, d| walk.any(d, out))),
            _ => {
                self.pay(1);
                leaf(view, d, out, self.wide_text)
            }
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
        let kind = discriminator.kind();
        self.pay(1);
        if let Some(e) = out.as_deref_mut()
            && kind == Kind::Char
            && e.code_sets().char != d.code_sets().char
        {
            let letter = d.read_char()?;
            e.write_char(letter)?;
            return self.arm(view, u32::from(letter).into(), d, out);
        }
        let label = read_label(kind, d)?;
        if kind == Kind::Enum && usize::try_from(label).is_ok_and(|label| label >= discriminator.member_count()) {
            return Err(CdrError::EnumRange);
        }
        if let Some(e) = out.as_deref_mut() {
            write_label(kind, label, e)?;
        }
        self.arm(view, label, d, out)
    }

    /// The member of a union that a discriminator chooses.
    fn arm(
        &mut self,
        view: View<'_>,
        label: i128,
        d: &mut Decoder<'_>,
        out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
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
        let element = view.content().ok_or(CdrError::BadType)?;
        let len = read_count(element, d)?;
        self.pay(1);
        if view.length() > 0 && len > view.length() as usize {
            return Err(CdrError::SequenceOverBound);
        }
        if let Some(e) = out.as_deref_mut() {
            e.write_len(len)?;
        }
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
            self.pay(len);
            return numbers(len, size, d, out);
        }
        for _ in 0..len {
            self.value(element, d, out.as_deref_mut())?;
        }
        Ok(())
    }

    /// A value that may be null, or one that came before.
    fn shared(&mut self, view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        self.met.values = true;
        let head = d.read_value_head()?;
        self.pay(1);
        match (head, out) {
            (ValueHead::Null, Some(e)) => e.write_null_value(),
            (ValueHead::Null | ValueHead::Again(..), None) => {}
            (ValueHead::Again(number, position), Some(e)) => {
                if !e.write_known_value(d.identity(number))? {
                    // It stands outside what is written here.
                    return d.read_again(number, position, |d| self.shared(view, d, Some(e)));
                }
            }
            (ValueHead::Value(start), out) => {
                let part = known_part(view, &start, d, Some(&mut self.met))?;
                return if part.is_custom {
                    self.custom(part, &start, d, out)
                } else {
                    self.part(view, part, &start, d, out)
                };
            }
        }
        Ok(())
    }

    /// A value whose type is known.
    fn part<'m>(
        &mut self,
        view: View<'_>,
        part: Part,
        start: &ValueStart<'m>,
        d: &mut Decoder<'m>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let Part { ids, type_code, .. } = part;
        let identity = d.identity(start.number);
        let keep = || Arc::clone(self.keep);
        let begin = |e: &mut &mut Encoder<'_>| e.begin_unknown_value(identity, keep, ids.into_iter(), start.chunked);
        let written = out.as_mut().map(begin).transpose()?;
        self.state(type_code.as_ref().map_or(view, TypeCode::view), d, out.as_deref_mut())?;
        d.end_value(start)?;
        out.zip(written).map_or(Ok(()), |(e, value)| e.end_value(value))
    }

    /// A value whose state only its own code understands: octets that are kept as they are, or that it writes again itself.
    fn custom<'m>(
        &mut self,
        part: Part,
        start: &ValueStart<'m>,
        d: &mut Decoder<'m>,
        out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let Some(e) = out else { return d.skip_custom(start) };
        if (d.endian(), d.version(), d.code_sets()) != (e.endian(), e.version(), e.code_sets()) {
            return d.convert_custom(start, e);
        }
        let id = part.ids.into_iter().next().ok_or(CdrError::BadValue)?;
        d.copy_custom(start, id, self.keep, e)
    }

    /// The state of a value, that of its bases first.
    fn state(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        // What is known of unions goes by their place in memory, and this type may go when the value is over.
        let arms = std::mem::take(&mut self.arms);
        let result = match view.kind() {
            Kind::ValueBox => self.value(view.content().ok_or(CdrError::BadType)?, d, out),
            _ => view.bases()?.into_iter().rev().try_for_each(|part| self.members(part, d, out.as_deref_mut())),
        };
        self.arms = arms;
        result
    }

    /// An object or a value.
    fn either(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let is_object = d.read_bool()?;
        self.pay(1);
        if let Some(e) = out.as_deref_mut() {
            e.write_bool(is_object);
        }
        if is_object { reference(d, out) } else { d.nested(|d| self.deeper(d, |walk, d| walk.shared(view, d, out))) }
    }

    fn any(&mut self, d: &mut Decoder<'_>, mut out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        let type_code = TypeCode::decode(d)?;
        self.pay(1);
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

/// What is told of a value by the TypeCode, or by whoever knows its type; what types that inherit from that add is left out.
pub(super) fn known_part(
    view: View<'_>,
    start: &ValueStart<'_>,
    d: &Decoder<'_>,
    met: Option<&mut Met>,
) -> Result<Part, CdrError> {
    let told = view.kind() != Kind::AbstractInterface && view.modifier() != ABSTRACT;
    let ids = start.ids.as_slice();
    if ids.is_empty() && told {
        return Part::of(vec![Cow::Owned(view.id().to_owned())], None, view);
    }
    for (at, id) in ids.iter().enumerate() {
        if at > 0 && !start.chunked {
            break;
        }
        // First what is known here: JacORB's TypeCodes leave out the bases to which a value can be truncated.
        let found = d.value_type(id);
        if found.is_none() && !(told && *id == view.id().as_bytes()) {
            continue;
        }
        if let Some(met) = met {
            met.truncated |= at > 0;
            found.iter().for_each(|found| met.add(&latin1(id), found));
        }
        let rest = ids.iter().skip(at).map(|id| latin1(id)).collect();
        return match found {
            Some(found) => Part::of(rest, Some(found.clone()), found.view()),
            None => Part::of(rest, None, view),
        };
    }
    Err(CdrError::NoValueFactory)
}

/// How much of a value is known: the repository ids from that of the known type on, and its TypeCode if it is another than the one
/// that was expected.
pub(super) struct Part {
    ids: Vec<Cow<'static, str>>,
    pub(super) type_code: Option<TypeCode>,
    /// Only the user's code knows what is in it.
    is_custom: bool,
}

impl Part {
    fn of(ids: Vec<Cow<'static, str>>, type_code: Option<TypeCode>, view: View<'_>) -> Result<Part, CdrError> {
        match view.kind() {
            Kind::Value | Kind::Event => Ok(Part { ids, type_code, is_custom: view.modifier() == CUSTOM }),
            Kind::ValueBox => Ok(Part { ids, type_code, is_custom: false }),
            _ => Err(CdrError::BadType),
        }
    }
}

fn latin1(octets: &[u8]) -> Cow<'static, str> {
    Cow::Owned(octets.iter().map(|octet| char::from(*octet)).collect())
}

/// Modifier of custom value types.
pub(super) const CUSTOM: i16 = 1;

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
fn leaf(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    wide_text: WideText,
) -> Result<(), CdrError> {
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
        Kind::Char | Kind::WChar => return character(kind, d, out, wide_text),
        Kind::String | Kind::WString => return text(view, d, out, wide_text),
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
        Kind::LocalInterface => return Err(CdrError::LocalObject),
        Kind::Null => return Err(CdrError::BadType),
        _ => return Err(CdrError::Unsupported),
    }
    Ok(())
}

fn character(
    kind: Kind,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    wide_text: WideText,
) -> Result<(), CdrError> {
    match (kind, out) {
        (Kind::Char, None) => d.read_u8().map(drop),
        (_, None) => d.read_wchar().map(drop),
        (Kind::Char, Some(e)) if e.code_sets().char == d.code_sets().char => {
            e.write_u8(d.read_u8()?);
            Ok(())
        }
        (Kind::Char, Some(e)) => e.write_char(d.read_char()?),
        (_, Some(e)) if wide_text == WideText::AsItCame && e.has_wide_form_of(d) => e.copy_wchar(d),
        (_, Some(e)) => e.write_wchar(d.read_wchar()?),
    }
}

fn text(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    wide_text: WideText,
) -> Result<(), CdrError> {
    let bound = if view.length() == 0 { u32::MAX } else { view.length() };
    match (view.kind(), out) {
        (Kind::WString, None) => d.wide_octets(bound).map(drop),
        (Kind::WString, Some(e)) if wide_text == WideText::AsItCame && e.has_wide_form_of(d) => e.copy_wstr(d, bound),
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
