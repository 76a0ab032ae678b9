//! `any`: a value with its type.

use std::any::Any;
use std::sync::Arc;

use super::transfer::{Met, normalize};
use super::{Value, transfer};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, Octets, ValueSpace, ValueTypes};
use crate::codeset::CodeSets;
use crate::giop::Version;
use crate::limits::Limits;
use crate::typecode::{Kind, TypeCode, View};

/// An `any`: a TypeCode and a value in the form in which it came or was written.
///
/// ```
/// use corelane_wire::{AnyValue, TypeCode};
/// let any = AnyValue::write(&TypeCode::LONG, |e| { e.write_i32(42); Ok(()) })?;
/// assert_eq!(any.read(|d| d.read_i32())?, 42);
/// # Ok::<(), corelane_wire::CdrError>(())
/// ```
#[derive(Clone)]
pub struct AnyValue {
    type_code: TypeCode,
    /// The value, from a multiple of 8 of the message on, so that it is aligned as it was.
    octets: Octets,
    /// Where the value begins in the octets, less than 8.
    start: u8,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
    /// Whether there are values (IDL `valuetype`) in it: they refer to each other by distances, and are written anew.
    values: bool,
    /// Whether one of them was more than is known here.
    truncated: bool,
    /// Types of values in it that its TypeCode does not tell.
    types: Option<ValueTypes>,
}

/// Lengths were compared with the limits of the connection when the value came.
static KEPT: Limits = Limits { string_length: u32::MAX, sequence_length: u32::MAX, ..Limits::DEFAULT };

impl AnyValue {
    /// An `any` of type null, without a value.
    #[must_use]
    pub fn null() -> AnyValue {
        AnyValue::of(TypeCode::NULL, Octets::new(), Form::LOCAL, false)
    }

    fn of(type_code: TypeCode, octets: Octets, form: Form, values: bool) -> AnyValue {
        let Form { start, endian, version, code_sets } = form;
        AnyValue { type_code, octets, start, endian, version, code_sets, values, truncated: false, types: None }
    }

    /// A value that `write` writes; it may be asked twice. That it is of the type is not looked at.
    ///
    /// # Errors
    /// Those of `write`: text with characters that neither UTF-8 nor, where there are single ones, ISO 8859-1 has.
    pub fn write(
        type_code: &TypeCode,
        mut write: impl FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        let mut attempt = |code_sets| AnyValue::write_as(type_code, Form { code_sets, ..Form::LOCAL }, &mut write);
        // A char beyond ASCII is one octet in ISO 8859-1 alone, which has no others: no connection can have both.
        match attempt(CodeSets::UTF8_UTF16) {
            Err(CdrError::NotInCodeSet) => attempt(CodeSets::LATIN1_UTF16),
            result => result,
        }
    }

    fn write_as(
        type_code: &TypeCode,
        form: Form,
        write: &mut dyn FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        let mut e = Encoder::new();
        e.set_endian(form.endian);
        e.set_version(form.version);
        e.set_code_sets(form.code_sets);
        write(&mut e)?;
        let octets = Octets::from(e.contiguous().map_or_else(|| e.to_vec(), <[u8]>::to_vec));
        Ok(AnyValue::of(type_code.clone(), octets, form, e.has_values()))
    }

    /// What `write` writes again of what stands at `from`: in the form of this machine, or in that in which it came where there are custom
    /// values in it, of which nobody here knows another.
    fn write_again(
        type_code: &TypeCode,
        from: &Decoder<'_>,
        mut write: impl FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        match AnyValue::write(type_code, &mut write) {
            Err(CdrError::CustomValue) => AnyValue::write_as(type_code, Form::of(from, 0), &mut write),
            result => result,
        }
    }

    /// A value of any type.
    ///
    /// # Errors
    /// [`CdrError::NotOfType`], and whatever else a value cannot be written for.
    pub fn from_value(type_code: &TypeCode, value: &Value) -> Result<AnyValue, CdrError> {
        let mut types = Vec::new();
        let written = AnyValue::write(type_code, |e| {
            types = value.encode_telling(type_code, e)?;
            Ok(())
        });
        Ok(written?.with_value_types(types))
    }

    /// The type.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.type_code
    }

    /// The same value with an equivalent type, such as an alias.
    ///
    /// # Errors
    /// [`CdrError::NotOfType`] if it is not equivalent.
    pub fn with_type(mut self, type_code: &TypeCode) -> Result<AnyValue, CdrError> {
        if !self.type_code.equivalent(type_code) {
            return Err(CdrError::NotOfType);
        }
        self.type_code = type_code.clone();
        Ok(self)
    }

    /// Reads the value with `read`, which knows its type.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T>(&self, read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>) -> Result<T, CdrError> {
        let values = self.value_space();
        read(&mut self.decoder().with_values(&values))
    }

    /// Where the values (IDL `valuetype`) in it are remembered while it is read.
    #[must_use]
    pub fn value_space(&self) -> ValueSpace {
        ValueSpace::knowing(self.types.clone())
    }

    /// Remembers types of values in it, by their repository ids: of those that inherit from the types that its TypeCode tells.
    #[must_use]
    pub fn with_value_types(mut self, types: Vec<(Box<str>, TypeCode)>) -> AnyValue {
        if !types.is_empty() {
            self.types = Some(types.into());
        }
        self
    }

    /// Whether a value (IDL `valuetype`) that came in it was of a type that is not known here, and was cut down to one that is.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// See [`with_value_types`](AnyValue::with_value_types).
    pub fn value_types(&self) -> impl Iterator<Item = &(Box<str>, TypeCode)> {
        self.types.iter().flat_map(|types| types.iter())
    }

    /// A decoder at the value; it needs a [`value_space`](AnyValue::value_space) where there may be values (IDL `valuetype`) in it.
    #[must_use]
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.octets, self.endian)
            .at(usize::from(self.start))
            .with_version(self.version)
            .with_code_sets(self.code_sets)
            .with_owner(&self.octets)
            .with_limits(&KEPT)
    }

    /// The value as a tree.
    ///
    /// # Errors
    /// [`CdrError::OverLimit`] for more parts than a tree may have.
    pub fn value(&self) -> Result<Value, CdrError> {
        self.read(|d| Value::decode(&self.type_code, d))
    }

    /// Whether the value is of type `to`, or differs from one only in its bounds and in the width of its text, which the types
    /// of Rust do not tell.
    #[must_use]
    pub fn conforms(&self, to: &TypeCode) -> bool {
        conforms(self.type_code.view(), to.view())
    }

    /// Reads a value of a type that is known, without a TypeCode in front.
    ///
    /// # Errors
    /// For octets that are no such value.
    pub fn decode_value(type_code: TypeCode, d: &mut Decoder<'_>) -> Result<AnyValue, CdrError> {
        let view = type_code.view();
        let (from, keep) = (d.clone(), nothing());
        // Values are aligned anew in each fragment of GIOP 1.1; those of IDL `valuetype` may refer to others outside; and where a chunk of
        // such a value ends among the octets, the size of the next one stands between them.
        if d.is_fragmented() || transfer(view, d, None, &keep)?.values || d.bytes().len() != from.bytes().len() {
            let mut met = Met::default();
            let written = AnyValue::write_again(&type_code, &from, |e| {
                *d = from.clone();
                met = transfer(view, d, Some(e), &keep)?;
                Ok(())
            });
            return Ok(AnyValue { truncated: met.truncated, ..written?.with_value_types(met.types) });
        }
        let at = from.position();
        let from = at - at % 8;
        let octets = d.bytes().get(from..d.position()).unwrap_or_default();
        let start = u8::try_from(at % 8).unwrap_or_default();
        let form = Form::of(d, start);
        let octets = d.keep(octets);
        Ok(AnyValue::of(type_code, octets, form, false))
    }

    /// Reads the members of an exception, whose repository id was read before.
    ///
    /// # Errors
    /// [`CdrError::NotOfType`] for a type that is no exception; octets that are no such members.
    pub fn decode_members(type_code: &TypeCode, d: &mut Decoder<'_>) -> Result<AnyValue, CdrError> {
        let view = type_code.view().resolved();
        if view.kind() != Kind::Except {
            return Err(CdrError::NotOfType);
        }
        let from = d.clone();
        let mut truncated = false;
        let written = AnyValue::write_again(type_code, &from, |e| {
            *d = from.clone();
            e.write_latin1_str(view.id())?;
            view.members().try_for_each(|member| {
                truncated |= transfer(member.ty, d, Some(e), &nothing())?.truncated;
                Ok(())
            })
        });
        Ok(AnyValue { truncated, ..written? })
    }

    /// Whether the octets can go into `e` as they are.
    fn fits(&self, e: &Encoder<'_>) -> bool {
        !self.values
            && (self.endian, self.version, self.code_sets) == (e.endian(), e.version(), e.code_sets())
            && e.position() % 8 == usize::from(self.start)
    }

    /// Writes the value without its type.
    ///
    /// # Errors
    /// Text that has no form in the code sets of the encoder.
    pub fn encode_value(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let values = self.value_space();
        self.encode_value_by(&mut self.decoder().with_values(&values), e)
    }

    /// The same with a [`decoder`](AnyValue::decoder) of this value that knows more of it, such as whose code converts custom values
    /// ([`ValueSpace::with_custom`]).
    ///
    /// # Errors
    /// Those of [`encode_value`](AnyValue::encode_value).
    pub fn encode_value_by(&self, d: &mut Decoder<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        if self.fits(e) {
            e.write_raw(self.octets.get(usize::from(self.start)..).unwrap_or_default());
            return Ok(());
        }
        let keep: Arc<dyn Any + Send + Sync> = Arc::new(self.octets.clone());
        transfer(self.type_code.view(), d, Some(e), &keep).map(drop)
    }

    /// The value in one form, whatever it came in: for comparisons.
    fn normal(&self) -> Vec<u8> {
        let native = [CodeSets::UTF8_UTF16, CodeSets::LATIN1_UTF16].map(|code_sets| Form { code_sets, ..Form::LOCAL });
        let normal = native.into_iter().enumerate().find_map(|(at, form)| {
            let mut octets = self.in_form(form)?;
            octets.push(u8::from(at == 0));
            Some(octets)
        });
        // A custom value has no other form than the one in which it came.
        normal.unwrap_or_else(|| {
            let own = Form { start: 0, endian: self.endian, version: self.version, code_sets: self.code_sets };
            let mut octets = self.in_form(own).unwrap_or_else(|| self.octets.to_vec());
            octets.extend([2 + self.endian.flag(), self.version.minor]);
            octets
        })
    }

    fn in_form(&self, form: Form) -> Option<Vec<u8>> {
        let write = &mut |e: &mut Encoder<'_>| self.read(|d| normalize(self.type_code.view(), d, e, &nothing()));
        AnyValue::write_as(&self.type_code, form, write).ok().map(|written| written.octets.to_vec())
    }
}

/// For encoders that do not outlive what they are written from.
fn nothing() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}

/// How the octets of a value are to be read.
struct Form {
    start: u8,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

impl Form {
    const LOCAL: Form =
        Form { start: 0, endian: Endian::NATIVE, version: Version::GIOP_1_2, code_sets: CodeSets::UTF8_UTF16 };

    fn of(d: &Decoder<'_>, start: u8) -> Form {
        Form { start, endian: d.endian(), version: d.version(), code_sets: d.code_sets() }
    }
}

fn conforms(from: View<'_>, to: View<'_>) -> bool {
    let (mut from, mut to) = (from.resolved(), to.resolved());
    // A type of a message can be a sequence of itself.
    for _ in 0..Limits::DEFAULT.nesting {
        let lengths = match (from.kind(), to.kind()) {
            (Kind::String | Kind::WString, Kind::String | Kind::WString) => return true,
            (Kind::Char | Kind::WChar, Kind::Char | Kind::WChar) => return true,
            (Kind::Sequence, Kind::Sequence) => true,
            (Kind::Array, Kind::Array) => from.length() == to.length(),
            _ => return from.to_type_code().equivalent(&to.to_type_code()),
        };
        match (from.content(), to.content()) {
            (Some(a), Some(b)) if lengths => (from, to) = (a.resolved(), b.resolved()),
            _ => return false,
        }
    }
    false
}

impl Cdr for AnyValue {
    const MIN_SIZE: usize = 4;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        self.type_code.encode(e)?;
        self.encode_value(e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<AnyValue, CdrError> {
        d.nested(|d| {
            let type_code = TypeCode::decode(d)?;
            AnyValue::decode_value(type_code, d)
        })
    }
}

impl Default for AnyValue {
    fn default() -> AnyValue {
        AnyValue::null()
    }
}

/// Equal types and equal values, whatever their byte order.
impl PartialEq for AnyValue {
    fn eq(&self, other: &AnyValue) -> bool {
        self.type_code == other.type_code && self.normal() == other.normal()
    }
}

impl std::fmt::Debug for AnyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut tuple = f.debug_struct("AnyValue");
        tuple.field("type", &format_args!("{}", self.type_code));
        match self.value() {
            Ok(value) => tuple.field("value", &value).finish(),
            Err(_) => tuple.field("octets", &self.octets.len()).finish(),
        }
    }
}
