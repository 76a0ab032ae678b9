//! Traversal of a value by its type: to skip it, or to write it in another form.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::{ArmTable, read_count};
use crate::cdr::{BulkLayout, Cdr, CdrError, Decoder, Encoder, ValueHead, ValueStart};
use crate::typecode::{ABSTRACT, TypeCode, TypeCodeKind, View, read_label, write_label};

/// Reads a value of a type, and writes it if `out` is given.
///
/// `keep` is an owner of the bytes that are read.
///
/// # Errors
/// [`CdrError`] if the bytes are not such a value, or if the value has no form in the encoder's
/// code sets.
pub(crate) fn transfer(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    keep: &Arc<dyn Any + Send + Sync>,
) -> Result<Findings, CdrError> {
    transcode(view, d, out, keep, Purpose::Send)
}

/// Writes a value in a form for comparisons: equal values become equal octets. TypeCodes, which
/// have many encodings, are returned instead, in order of occurrence.
///
/// # Errors
/// The errors of [`transfer`].
pub(super) fn normalize(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: &mut Encoder<'_>,
    keep: &Arc<dyn Any + Send + Sync>,
) -> Result<Vec<ComparedTypeCode>, CdrError> {
    let mut types = Vec::new();
    transcode(view, d, Some(out), keep, Purpose::Compare(&mut types))?;
    Ok(types)
}

fn transcode(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    keep: &Arc<dyn Any + Send + Sync>,
    purpose: Purpose<'_>,
) -> Result<Findings, CdrError> {
    let mut walk = Transcoder {
        steps: 0,
        charged: 0,
        depth: 0,
        arms: ArmTable::default(),
        keep,
        findings: Findings::default(),
        purpose,
    };
    walk.value(view, d, out)?;
    Ok(walk.findings)
}

enum Purpose<'t> {
    /// The encoder sends the value in the received form, byte-order marks included, where that form
    /// keeps the meaning.
    Send,
    /// Equal values get the same form: text without unneeded byte-order mark, chunked values (IDL
    /// `valuetype`) with one repository id. TypeCodes are added to the list instead of being
    /// written.
    Compare(&'t mut Vec<ComparedTypeCode>),
}

impl Purpose<'_> {
    fn is_send(&self) -> bool {
        matches!(self, Purpose::Send)
    }
}

pub(super) enum ComparedTypeCode {
    AnyType(TypeCode),
    Value(TypeCode),
}

impl ComparedTypeCode {
    /// Returns true if both are equal; the types of two `any`s need only be equivalent.
    pub(super) fn same(&self, other: &ComparedTypeCode) -> bool {
        match (self, other) {
            (ComparedTypeCode::AnyType(a), ComparedTypeCode::AnyType(b)) => a.equivalent(b),
            (ComparedTypeCode::Value(a), ComparedTypeCode::Value(b)) => a == b,
            _ => false,
        }
    }
}

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) values: bool,
    pub(crate) truncated: bool,
    pub(crate) types: Vec<(Box<str>, TypeCode)>,
}

impl Findings {
    pub(super) fn add(&mut self, id: &str, type_code: &TypeCode) {
        if !self.types.iter().any(|(known, _)| **known == *id) {
            self.types.push((id.into(), type_code.clone()));
        }
    }
}

/// Number of steps (visited parts of a value) that are permitted even if the value has no bytes.
const FREE_STEPS: usize = 512;
/// Number of further steps for each part that has bytes: the part itself and the structures around
/// it.
const STEPS_PER_PART: usize = 16;

struct Transcoder<'k, 't> {
    steps: usize,
    /// The number of parts with bytes; bytes are not counted, because another form of the value has
    /// more or fewer bytes.
    charged: usize,
    depth: u32,
    arms: ArmTable,
    keep: &'k Arc<dyn Any + Send + Sync>,
    findings: Findings,
    purpose: Purpose<'t>,
}

impl Transcoder<'_, '_> {
    /// Counts a step, and fails above the limit on steps, because a value may have many parts of 0
    /// bytes.
    fn step(&mut self) -> Result<(), CdrError> {
        self.steps += 1;
        let charged = self.charged.saturating_mul(STEPS_PER_PART);
        if self.steps > charged.saturating_add(FREE_STEPS) { Err(CdrError::LimitExceeded) } else { Ok(()) }
    }

    fn charge(&mut self, parts: usize) {
        self.charged = self.charged.saturating_add(parts);
    }

    fn value(&mut self, view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        self.step()?;
        let view = view.unaliased();
        match view.kind() {
            TypeCodeKind::Null | TypeCodeKind::Void => Ok(()),
            TypeCodeKind::Struct => self.deeper(d, |walk, d| walk.members(view, d, out)),
            TypeCodeKind::Except => {
                self.charge(1);
                let id = d.read_latin1_string()?;
                let mut out = out;
                if let Some(e) = out.as_deref_mut() {
                    e.write_latin1_str(&id)?;
                }
                self.deeper(d, |walk, d| walk.members(view, d, out))
            }
            TypeCodeKind::Union => self.deeper(d, |walk, d| walk.union(view, d, out)),
            TypeCodeKind::Sequence => d.read_nested(|d| self.deeper(d, |walk, d| walk.sequence(view, d, out))),
            TypeCodeKind::Array => {
                let element = view.content().ok_or(CdrError::BadTypeCode)?;
                self.deeper(d, |walk, d| walk.elements(view.length() as usize, element, d, out))
            }
            TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event => {
                d.read_nested(|d| self.deeper(d, |walk, d| walk.shared(view, d, out)))
            }
            TypeCodeKind::AbstractInterface => self.either(view, d, out),
            TypeCodeKind::Any => d.read_nested(|d| self.deeper(d, |walk, d| walk.any(d, out))),
            _ => {
                self.charge(1);
                leaf(view, d, out, &mut self.purpose)
            }
        }
    }

    /// Calls `parts` one level deeper, and fails at the maximum depth. The decoder's nesting limit
    /// does not count structures, unions and arrays.
    fn deeper<'m>(
        &mut self,
        d: &mut Decoder<'m>,
        parts: impl FnOnce(&mut Self, &mut Decoder<'m>) -> Result<(), CdrError>,
    ) -> Result<(), CdrError> {
        if self.depth >= d.limits().max_nesting.saturating_mul(4) {
            return Err(CdrError::NestingTooDeep);
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
        let discriminator = view.content().ok_or(CdrError::BadTypeCode)?.unaliased();
        let kind = discriminator.kind();
        self.charge(1);
        if let Some(e) = out.as_deref_mut()
            && kind == TypeCodeKind::Char
            && e.code_sets().char != d.code_sets().char
        {
            let letter = d.read_char()?;
            e.write_char(letter)?;
            return self.arm(view, u32::from(letter).into(), d, out);
        }
        let label = read_label(kind, d)?;
        if kind == TypeCodeKind::Enum && usize::try_from(label).is_ok_and(|label| label >= discriminator.member_count())
        {
            return Err(CdrError::EnumOutOfRange);
        }
        if let Some(e) = out.as_deref_mut() {
            write_label(kind, label, e)?;
        }
        self.arm(view, label, d, out)
    }

    fn arm(
        &mut self,
        view: View<'_>,
        label: i128,
        d: &mut Decoder<'_>,
        out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        match self.arms.select(view, label).and_then(|arm| view.member(arm)) {
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
        let element = view.content().ok_or(CdrError::BadTypeCode)?;
        let len = read_count(element, d)?;
        self.charge(1);
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
        if let Some(size) = number_size(element.unaliased().kind()) {
            self.charge(len);
            return numbers(len, size, d, out);
        }
        let mut parts = 0;
        if out.is_none()
            && len > 1
            && let Some(layout) = fixed_layout(element, &mut parts)
            && d.skip_bulk(layout, len)?
        {
            self.charge(len.saturating_mul(parts));
            return Ok(());
        }
        for _ in 0..len {
            self.value(element, d, out.as_deref_mut())?;
        }
        Ok(())
    }

    fn shared(&mut self, view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        self.findings.values = true;
        let head = d.read_value_head()?;
        self.charge(1);
        match (head, out) {
            (ValueHead::Null, Some(e)) => e.write_null_value(),
            (ValueHead::Null | ValueHead::Indirection(..), None) => {}
            (ValueHead::Indirection(number, position), Some(e)) => {
                if !e.try_write_indirection(d.identity(number))? {
                    // The indirection leads outside of the written value, so the value is written
                    // again.
                    return d.reread_value(number, position, |d| self.shared(view, d, Some(e)));
                }
            }
            (ValueHead::Value(start), out) => {
                let part = find_known_type(view, &start, d, Some(&mut self.findings))?;
                return if part.is_custom {
                    self.custom(part, &start, d, out)
                } else {
                    self.part(view, part, &start, d, out)
                };
            }
        }
        Ok(())
    }

    fn part<'m>(
        &mut self,
        view: View<'_>,
        part: KnownType,
        start: &ValueStart<'m>,
        d: &mut Decoder<'m>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let KnownType { ids, type_code, .. } = part;
        let (ids_written, chunked) = if self.purpose.is_send() { (ids.len(), start.is_chunked) } else { (1, true) };
        let identity = d.identity(start.value_number);
        let keep = || Arc::clone(self.keep);
        let ids = ids.into_iter().take(ids_written);
        let begin = |e: &mut &mut Encoder<'_>| e.begin_new_value(identity, keep, ids, chunked);
        let written = out.as_mut().map(begin).transpose()?;
        self.state(type_code.as_ref().map_or(view, TypeCode::view), d, out.as_deref_mut())?;
        d.end_value(start)?;
        out.zip(written).map_or(Ok(()), |(e, value)| e.end_value(value))
    }

    /// Transfers a custom value, whose state only custom code understands: copies its octets, or
    /// calls the custom code to write the value again.
    fn custom<'m>(
        &mut self,
        part: KnownType,
        start: &ValueStart<'m>,
        d: &mut Decoder<'m>,
        out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let Some(e) = out else { return d.skip_custom(start) };
        if (d.endian(), d.version(), d.code_sets()) != (e.endian(), e.version(), e.code_sets()) {
            return d.convert_custom(start, e);
        }
        let id = part.ids.into_iter().next().ok_or(CdrError::MalformedValuetype)?;
        d.copy_custom(start, id, self.keep, e)
    }

    fn state(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        // The arm tables find a type by its address. The type of this value may be dropped after
        // the value, and a new type may get the same address. So the arms of this type are in
        // separate tables.
        let arms = std::mem::take(&mut self.arms);
        let result = match view.kind() {
            TypeCodeKind::ValueBox => self.value(view.content().ok_or(CdrError::BadTypeCode)?, d, out),
            _ => view.bases()?.into_iter().rev().try_for_each(|part| self.members(part, d, out.as_deref_mut())),
        };
        self.arms = arms;
        result
    }

    fn either(
        &mut self,
        view: View<'_>,
        d: &mut Decoder<'_>,
        mut out: Option<&mut Encoder<'_>>,
    ) -> Result<(), CdrError> {
        let is_object = d.read_bool()?;
        self.charge(1);
        if let Some(e) = out.as_deref_mut() {
            e.write_bool(is_object);
        }
        if is_object {
            reference(d, out)
        } else {
            d.read_nested(|d| self.deeper(d, |walk, d| walk.shared(view, d, out)))
        }
    }

    fn any(&mut self, d: &mut Decoder<'_>, mut out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        let type_code = TypeCode::decode(d)?;
        self.charge(1);
        match (&mut self.purpose, out.as_deref_mut()) {
            (Purpose::Compare(types), _) => types.push(ComparedTypeCode::AnyType(type_code.clone())),
            (Purpose::Send, Some(e)) => type_code.encode(e)?,
            (Purpose::Send, None) => {}
        }
        // The arm tables find a type by its address. The types in the `any` may be dropped after
        // its value, and new types may get the same addresses. So the arms of the types in the
        // `any` are in separate tables.
        let arms = std::mem::take(&mut self.arms);
        let result = self.value(type_code.view(), d, out);
        self.arms = arms;
        result
    }
}

/// Finds the most derived known type of a value. Without ids, the result is the expected type.
/// Otherwise the result is the type of the first id that the decoder knows or that is the id of the
/// expected type. Only the first id counts if the value is not chunked.
pub(super) fn find_known_type(
    view: View<'_>,
    start: &ValueStart<'_>,
    d: &Decoder<'_>,
    met: Option<&mut Findings>,
) -> Result<KnownType, CdrError> {
    let told = view.kind() != TypeCodeKind::AbstractInterface && view.modifier() != ABSTRACT;
    let ids = start.repository_ids.as_slice();
    if ids.is_empty() && told {
        return KnownType::of(vec![Cow::Owned(view.id().to_owned())], None, view);
    }
    for (at, id) in ids.iter().enumerate() {
        if at > 0 && !start.is_chunked {
            break;
        }
        // A type that this process knows takes precedence over the TypeCode, because JacORB's
        // TypeCodes omit the bases to which a value can be truncated.
        let found = d.find_value_type(id);
        if found.is_none() && !(told && *id == view.id().as_bytes()) {
            continue;
        }
        if let Some(met) = met {
            met.truncated |= at > 0;
            found.iter().for_each(|found| met.add(&latin1(id), found));
        }
        let rest = ids.iter().skip(at).map(|id| latin1(id)).collect();
        return match found {
            Some(found) => KnownType::of(rest, Some(found.clone()), found.view()),
            None => KnownType::of(rest, None, view),
        };
    }
    Err(CdrError::NoValueFactory)
}

/// The known type of a value: its repository id and the ids after it, and its TypeCode. The
/// TypeCode is `None` if it is the expected TypeCode.
pub(super) struct KnownType {
    ids: Vec<Cow<'static, str>>,
    pub(super) type_code: Option<TypeCode>,
    is_custom: bool,
}

impl KnownType {
    fn of(ids: Vec<Cow<'static, str>>, type_code: Option<TypeCode>, view: View<'_>) -> Result<KnownType, CdrError> {
        match view.kind() {
            TypeCodeKind::Value | TypeCodeKind::Event => {
                Ok(KnownType { ids, type_code, is_custom: view.modifier() == CUSTOM })
            }
            TypeCodeKind::ValueBox => Ok(KnownType { ids, type_code, is_custom: false }),
            _ => Err(CdrError::BadTypeCode),
        }
    }
}

fn latin1(octets: &[u8]) -> Cow<'static, str> {
    Cow::Owned(octets.iter().map(|octet| char::from(*octet)).collect())
}

pub(super) const CUSTOM: i16 = 1;

fn number_size(kind: TypeCodeKind) -> Option<usize> {
    match kind {
        TypeCodeKind::Octet | TypeCodeKind::Boolean => Some(1),
        TypeCodeKind::Short | TypeCodeKind::UShort => Some(2),
        TypeCodeKind::Long | TypeCodeKind::ULong | TypeCodeKind::Float => Some(4),
        TypeCodeKind::LongLong | TypeCodeKind::ULongLong | TypeCodeKind::Double => Some(8),
        _ => None,
    }
}

const MAX_BULK_PARTS: usize = 64;

/// Returns the layout of a number, or of a structure or an array of numbers; `None` for other types
/// and above [`MAX_BULK_PARTS`]. `parts` counts the visited parts; the caller passes 0.
fn fixed_layout(view: View<'_>, parts: &mut usize) -> Option<BulkLayout> {
    *parts += 1;
    let view = view.unaliased();
    match view.kind() {
        _ if *parts > MAX_BULK_PARTS => None,
        TypeCodeKind::Struct if view.member_count() > 0 => view
            .members()
            .try_fold(BulkLayout::EMPTY, |before, member| Some(before.followed_by(fixed_layout(member.ty, parts)?))),
        TypeCodeKind::Array if (1..=MAX_BULK_PARTS).contains(&(view.length() as usize)) => {
            Some(fixed_layout(view.content()?, parts)?.repeated(view.length() as usize))
        }
        kind => number_size(kind).map(BulkLayout::of_number),
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
        1 => e.write_bytes(d.read_bytes(len)?),
        2 => e.write_slice(&d.read_vec::<u16>(len)?),
        4 => e.write_slice(&d.read_vec::<u32>(len)?),
        _ => e.write_slice(&d.read_vec::<u64>(len)?),
    }
    Ok(())
}

fn leaf(
    view: View<'_>,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    purpose: &mut Purpose<'_>,
) -> Result<(), CdrError> {
    let kind = view.kind();
    if let Some(size) = number_size(kind) {
        return numbers(1, size, d, out);
    }
    match kind {
        TypeCodeKind::LongDouble => {
            let quad = d.read_long_double()?;
            if let Some(e) = out {
                e.write_long_double(quad);
            }
        }
        TypeCodeKind::Enum => {
            let members = u32::try_from(view.member_count()).map_err(|_| CdrError::LengthOverflow)?;
            let number = d.read_enum(members)?;
            if let Some(e) = out {
                e.write_u32(number);
            }
        }
        TypeCodeKind::Char | TypeCodeKind::WChar => return character(kind, d, out, purpose.is_send()),
        TypeCodeKind::String | TypeCodeKind::WString => return text(view, d, out, purpose.is_send()),
        TypeCodeKind::Fixed => {
            let digits = u16::try_from(view.length()).map_err(|_| CdrError::MalformedFixed)?;
            let octets = d.read_bytes(usize::from(digits / 2 + 1))?;
            if let Some(e) = out {
                e.write_bytes(octets);
            }
        }
        TypeCodeKind::TypeCode => {
            let type_code = TypeCode::decode(d)?;
            match (purpose, out) {
                (Purpose::Compare(types), _) => types.push(ComparedTypeCode::Value(type_code)),
                (Purpose::Send, Some(e)) => type_code.encode(e)?,
                (Purpose::Send, None) => {}
            }
        }
        TypeCodeKind::Principal => {
            let octets = d.read_octet_sequence()?;
            if let Some(e) = out {
                e.write_octet_sequence_copied(octets)?;
            }
        }
        TypeCodeKind::ObjRef | TypeCodeKind::Component | TypeCodeKind::Home => return reference(d, out),
        TypeCodeKind::LocalInterface => return Err(CdrError::LocalObjectNotSendable),
        TypeCodeKind::Null => return Err(CdrError::BadTypeCode),
        _ => return Err(CdrError::UnsupportedForm),
    }
    Ok(())
}

fn character(
    kind: TypeCodeKind,
    d: &mut Decoder<'_>,
    out: Option<&mut Encoder<'_>>,
    as_it_came: bool,
) -> Result<(), CdrError> {
    match (kind, out) {
        (TypeCodeKind::Char, None) => d.read_u8().map(drop),
        (_, None) => d.read_wchar().map(drop),
        (TypeCodeKind::Char, Some(e)) if e.code_sets().char == d.code_sets().char => {
            e.write_u8(d.read_u8()?);
            Ok(())
        }
        (TypeCodeKind::Char, Some(e)) => e.write_char(d.read_char()?),
        (_, Some(e)) if as_it_came && e.has_wide_form_of(d) => e.copy_wchar(d),
        (_, Some(e)) => e.write_wchar(d.read_wchar()?),
    }
}

fn text(view: View<'_>, d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>, as_it_came: bool) -> Result<(), CdrError> {
    let bound = if view.length() == 0 { u32::MAX } else { view.length() };
    match (view.kind(), out) {
        (TypeCodeKind::WString, None) => d.wide_octets(bound).map(drop),
        (TypeCodeKind::WString, Some(e)) if as_it_came && e.has_wide_form_of(d) => e.copy_wstr(d, bound),
        (TypeCodeKind::WString, Some(e)) => e.write_wstr(&d.read_bounded_wstring(bound)?),
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
                e.write_bytes(octets);
                e.write_u8(0);
            }
            Ok(())
        }
    }
}

fn reference(d: &mut Decoder<'_>, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
    let ior = crate::Ior::decode(d)?;
    match out {
        Some(e) => ior.encode(e),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AnyValue, Value};
    use super::*;
    use crate::cdr::Endian;

    fn structure<const N: usize>(name: &str, members: [TypeCode; N]) -> TypeCode {
        let names: Vec<String> = (0..N).map(|number| format!("m{number}")).collect();
        let members = names.iter().map(String::as_str).zip(members);
        TypeCode::structure(&format!("IDL:{name}:1.0"), name, members).unwrap()
    }

    #[test]
    fn skipped_sequences_of_structures_end_where_their_elements_end() {
        let inner =
            structure("Inner", [TypeCode::BOOLEAN, TypeCode::DOUBLE, TypeCode::array(TypeCode::OCTET, 3).unwrap()]);
        let alias = TypeCode::alias("IDL:Alias:1.0", "Alias", inner.clone()).unwrap();
        let outer = structure("Outer", [TypeCode::SHORT, TypeCode::array(alias, 2).unwrap(), TypeCode::OCTET]);
        let text = structure("Text", [TypeCode::OCTET, TypeCode::STRING]);
        let number = Value::Struct(vec![Value::Boolean(true), Value::Double(0.5), Value::Octets(vec![1, 2, 3].into())]);
        let both = Value::List(vec![number.clone(), number.clone()]);
        let large = Value::Struct(vec![Value::Short(-2), both, Value::Octet(9)]);
        let word = Value::Struct(vec![Value::Octet(1), Value::String("one".into())]);
        for (element, value) in [(inner, number), (outer, large), (text, word)] {
            let sequence = TypeCode::sequence(element, 0).unwrap();
            for (len, start) in (0..4).flat_map(|len| (0..8u8).map(move |start| (len, start))) {
                let mut e = Encoder::new();
                (0..start).for_each(|octet| e.write_u8(octet));
                Value::List(vec![value.clone(); len]).encode(&sequence, &mut e).unwrap();
                let octets = e.into_reusable_buffer();
                let decoder = |end: usize| Decoder::new(&octets[..end], Endian::NATIVE).at_position(start.into());
                let mut d = decoder(octets.len());
                let any = AnyValue::decode_value(sequence.clone(), &mut d).unwrap();
                assert_eq!(d.remaining_len(), 0, "{len} elements at {start}");
                assert_eq!(any.value().unwrap(), Value::List(vec![value.clone(); len]));
                for end in usize::from(start)..octets.len() {
                    assert!(AnyValue::decode_value(sequence.clone(), &mut decoder(end)).is_err());
                }
            }
        }
    }

    #[test]
    fn only_structures_of_numbers_are_skipped_as_a_whole() {
        let layout = |ty: &TypeCode| fixed_layout(ty.view(), &mut 0).is_some();
        let numbers = structure("Numbers", [TypeCode::OCTET, TypeCode::LONG]);
        assert!(layout(&numbers) && layout(&TypeCode::array(numbers.clone(), 30).unwrap()));
        assert!(!layout(&TypeCode::array(numbers.clone(), 65).unwrap()));
        assert!(!layout(&structure("Empty", [])) && !layout(&structure("Text", [TypeCode::LONG, TypeCode::STRING])));
        assert!(!layout(&structure("Wide", [(); MAX_BULK_PARTS].map(|()| TypeCode::LONG))));
    }
}
