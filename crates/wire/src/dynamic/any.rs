//! `any`: a value with its type.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::transfer::{ComparedTypeCode, Findings, normalize};
use super::{Value, transfer};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, Octets, ValueReadState, ValueTypes};
use crate::codeset::CodeSets;
use crate::giop::Version;
use crate::limits::Limits;
use crate::typecode::{TypeCode, TypeCodeKind, View};

/// An `any`: a TypeCode and an encoded value in the form in which it was received or written.
///
/// ```
/// use corelane_wire::{AnyValue, TypeCode};
/// let any = AnyValue::from_writer(&TypeCode::LONG, |e| { e.write_i32(42); Ok(()) })?;
/// assert_eq!(any.read(|d| d.read_i32())?, 42);
/// # Ok::<(), corelane_wire::CdrError>(())
/// ```
#[derive(Clone)]
pub struct AnyValue {
    type_code: TypeCode,
    /// The encoded value, behind the bytes of its message since the last multiple of 8. These bytes
    /// preserve the alignment of the value.
    octets: Octets,
    start: u8,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
    /// True if the octets contain values (IDL `valuetype`), whose indirections prevent an unchanged
    /// copy.
    values: bool,
    truncated: bool,
    /// The types of contained values that the TypeCode does not name.
    types: Option<ValueTypes>,
}

/// Lengths are unlimited, because a received value was checked against limits on arrival.
static STORED_LIMITS: Limits = Limits { max_string_length: u32::MAX, max_sequence_length: u32::MAX, ..Limits::DEFAULT };

/// The size in bytes up to which a value is written without a second allocation.
const SMALL_VALUE: usize = 64;

impl AnyValue {
    /// Creates an `any` of type null, without a value.
    #[must_use]
    pub fn null() -> AnyValue {
        AnyValue::of(TypeCode::NULL, Octets::new(), CdrForm::LOCAL, false)
    }

    fn of(type_code: TypeCode, octets: Octets, form: CdrForm, values: bool) -> AnyValue {
        let CdrForm { start, endian, version, code_sets } = form;
        AnyValue { type_code, octets, start, endian, version, code_sets, values, truncated: false, types: None }
    }

    /// Creates an `any` from the output of `write`, which may be called twice. The output is not
    /// checked against the type.
    ///
    /// # Errors
    /// The errors of `write`, and an error if neither UTF-8 nor ISO 8859-1 can encode all
    /// characters of the value.
    pub fn from_writer(
        type_code: &TypeCode,
        mut write: impl FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        let mut attempt =
            |code_sets| AnyValue::write_as(type_code, CdrForm { code_sets, ..CdrForm::LOCAL }, &mut write);
        // A non-ASCII `char` is one octet only in ISO 8859-1, but ISO 8859-1 lacks most characters.
        match attempt(CodeSets::UTF8_UTF16) {
            Err(CdrError::CharacterNotInCodeSet) => attempt(CodeSets::LATIN1_UTF16),
            result => result,
        }
    }

    fn write_as(
        type_code: &TypeCode,
        form: CdrForm,
        write: &mut dyn FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        let mut e = Encoder::with_buffer(Vec::with_capacity(SMALL_VALUE));
        e.set_endian(form.endian);
        e.set_version(form.version);
        e.set_code_sets(form.code_sets);
        write(&mut e)?;
        let values = e.has_values();
        let octets =
            Octets::from(if e.as_contiguous_slice().is_some() { e.into_reusable_buffer() } else { e.to_vec() });
        Ok(AnyValue::of(type_code.clone(), octets, form, values))
    }

    /// Creates an `any` from the output of `write`, in this machine's byte order and GIOP 1.2. If
    /// the output has custom values without a known converter, the `any` has the form of `from`.
    fn rewrite(
        type_code: &TypeCode,
        from: &Decoder<'_>,
        mut write: impl FnMut(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<AnyValue, CdrError> {
        match AnyValue::from_writer(type_code, &mut write) {
            Err(CdrError::CustomValueNotConvertible) => AnyValue::write_as(type_code, CdrForm::of(from, 0), &mut write),
            result => result,
        }
    }

    /// Creates an `any` from a type and a value tree.
    ///
    /// # Errors
    /// [`CdrError::TypeMismatch`], and the other errors of writing a value.
    pub fn from_value(type_code: &TypeCode, value: &Value) -> Result<AnyValue, CdrError> {
        let mut types = Vec::new();
        let written = AnyValue::from_writer(type_code, |e| {
            types = value.encode_with_types(type_code, e)?;
            Ok(())
        });
        Ok(written?.with_value_types(types))
    }

    /// Returns the type.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        &self.type_code
    }

    /// Replaces the type by an equivalent type, such as an alias.
    ///
    /// # Errors
    /// [`CdrError::TypeMismatch`] if the type is not equivalent.
    pub fn with_type(mut self, type_code: &TypeCode) -> Result<AnyValue, CdrError> {
        if !self.type_code.equivalent(type_code) {
            return Err(CdrError::TypeMismatch);
        }
        self.type_code = type_code.clone();
        Ok(self)
    }

    /// Reads the value with `read`, which knows its type.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn read<T>(&self, read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>) -> Result<T, CdrError> {
        let values = self.value_read_state();
        read(&mut self.decoder().with_value_read_state(&values))
    }

    /// Creates the state for reading the values (IDL `valuetype`) in this `any`. Each reading needs
    /// a new state.
    #[must_use]
    pub fn value_read_state(&self) -> ValueReadState {
        ValueReadState::with_known_types(self.types.clone())
    }

    /// Sets the types of contained values (IDL `valuetype`) that the TypeCode does not name,
    /// because they inherit from a type that it names. Each type comes with its repository id.
    #[must_use]
    pub fn with_value_types(mut self, types: Vec<(Box<str>, TypeCode)>) -> AnyValue {
        if !types.is_empty() {
            self.types = Some(types.into());
        }
        self
    }

    /// Returns true if a received value (IDL `valuetype`) in the `any` had an unknown type and was
    /// truncated to a known type.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the types that [`with_value_types`](AnyValue::with_value_types) set.
    pub fn value_types(&self) -> impl Iterator<Item = &(Box<str>, TypeCode)> {
        self.types.iter().flat_map(|types| types.iter())
    }

    /// Returns a decoder at the value. If the value may contain values (IDL `valuetype`), the
    /// decoder needs a [`value_read_state`](AnyValue::value_read_state).
    #[must_use]
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.octets, self.endian)
            .at_position(usize::from(self.start))
            .with_version(self.version)
            .with_code_sets(self.code_sets)
            .with_shared_message(&self.octets)
            .with_limits(&STORED_LIMITS)
    }

    /// Returns the value as a tree.
    ///
    /// # Errors
    /// The errors of [`Value::decode`].
    pub fn value(&self) -> Result<Value, CdrError> {
        self.read(|d| Value::decode(&self.type_code, d))
    }

    /// Returns true if the value's type is equivalent to `to`. In the type itself, and in the
    /// elements of its sequences and arrays, bounds and the difference between narrow and wide
    /// characters or text are ignored. Arrays must have equal lengths.
    #[must_use]
    pub fn conforms_to(&self, to: &TypeCode) -> bool {
        conforms(self.type_code.view(), to.view())
    }

    /// Reads a value of a known type, without a TypeCode in front.
    ///
    /// # Errors
    /// [`CdrError`] if the bytes are not such a value.
    pub fn decode_value(type_code: TypeCode, d: &mut Decoder<'_>) -> Result<AnyValue, CdrError> {
        let view = type_code.view();
        let (from, keep) = (d.clone(), no_owner());
        // The octets are copied as they are unless alignment restarts in fragments, the value
        // contains values (IDL `valuetype`), or the octets span chunks.
        if d.is_fragmented()
            || transfer(view, d, None, keep)?.values
            || d.bytes_from_origin().len() != from.bytes_from_origin().len()
        {
            let mut met = Findings::default();
            let written = AnyValue::rewrite(&type_code, &from, |e| {
                *d = from.clone();
                met = transfer(view, d, Some(e), keep)?;
                Ok(())
            });
            let written = written?;
            d.charge_block(written.octets.len())?;
            d.charge_elements::<[(Box<str>, TypeCode); 2]>(met.types.len())?;
            return Ok(AnyValue { truncated: met.truncated, ..written.with_value_types(met.types) });
        }
        let at = from.position();
        let from = at - at % 8;
        let octets = d.bytes_from_origin().get(from..d.position()).unwrap_or_default();
        let start = u8::try_from(at % 8).unwrap_or_default();
        let form = CdrForm::of(d, start);
        let octets = d.share_or_copy(octets)?;
        Ok(AnyValue::of(type_code, octets, form, false))
    }

    /// Reads the members of an exception, whose repository id was read before.
    ///
    /// # Errors
    /// [`CdrError::TypeMismatch`] for a type that is not an exception; other errors if the bytes
    /// are not its members.
    pub fn decode_exception_members(type_code: &TypeCode, d: &mut Decoder<'_>) -> Result<AnyValue, CdrError> {
        let view = type_code.view().unaliased();
        if view.kind() != TypeCodeKind::Except {
            return Err(CdrError::TypeMismatch);
        }
        let from = d.clone();
        let mut truncated = false;
        let written = AnyValue::rewrite(type_code, &from, |e| {
            *d = from.clone();
            e.write_latin1_str(view.id())?;
            view.members().try_for_each(|member| {
                truncated |= transfer(member.ty, d, Some(e), no_owner())?.truncated;
                Ok(())
            })
        });
        let written = written?;
        d.charge_block(written.octets.len())?;
        Ok(AnyValue { truncated, ..written })
    }

    fn fits(&self, e: &Encoder<'_>) -> bool {
        !self.values
            && (self.endian, self.version, self.code_sets) == (e.endian(), e.version(), e.code_sets())
            && e.position() % 8 == usize::from(self.start)
    }

    /// Writes the value without its type.
    ///
    /// # Errors
    /// [`CdrError`] if text has no form in the encoder's code sets, or if a custom value cannot be
    /// converted.
    pub fn encode_value(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let values = self.value_read_state();
        self.encode_value_from(&mut self.decoder().with_value_read_state(&values), e)
    }

    /// Writes the value, which this method reads from `d`, a [`decoder`](AnyValue::decoder) of this
    /// `any`. The caller can add settings to the decoder, for example a converter of custom values
    /// ([`ValueReadState::with_lookup_and_converter`]).
    ///
    /// # Errors
    /// The errors of [`encode_value`](AnyValue::encode_value).
    pub fn encode_value_from(&self, d: &mut Decoder<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let octets = self.octets.get(usize::from(self.start)..).unwrap_or_default();
        // A value without octets, such as null, is the same in each form.
        if self.fits(e) || (octets.is_empty() && !self.values) {
            e.write_bytes(octets);
            return Ok(());
        }
        let keep: Arc<dyn Any + Send + Sync> = Arc::new(self.octets.clone());
        transfer(self.type_code.view(), d, Some(e), &keep).map(drop)
    }

    fn normal(&self) -> NormalForm {
        let native =
            [CodeSets::UTF8_UTF16, CodeSets::LATIN1_UTF16].map(|code_sets| CdrForm { code_sets, ..CdrForm::LOCAL });
        let normal = native.into_iter().enumerate().find_map(|(at, form)| {
            let mut normal = self.in_form(form)?;
            normal.octets.push(u8::from(at == 0));
            Some(normal)
        });
        // A custom value without a converter can only be compared in its received form.
        normal.unwrap_or_else(|| {
            let own = CdrForm { start: 0, endian: self.endian, version: self.version, code_sets: self.code_sets };
            let mut normal =
                self.in_form(own).unwrap_or_else(|| NormalForm { octets: self.octets.to_vec(), types: Vec::new() });
            normal.octets.extend([2 + self.endian.to_flag(), self.version.minor]);
            normal
        })
    }

    fn in_form(&self, form: CdrForm) -> Option<NormalForm> {
        let mut types = Vec::new();
        let write = &mut |e: &mut Encoder<'_>| {
            types = self.read(|d| normalize(self.type_code.view(), d, e, no_owner()))?;
            Ok(())
        };
        let written = AnyValue::write_as(&self.type_code, form, write).ok()?;
        Some(NormalForm { octets: written.octets.to_vec(), types })
    }
}

struct NormalForm {
    octets: Vec<u8>,
    types: Vec<ComparedTypeCode>,
}

impl NormalForm {
    fn same(&self, other: &NormalForm) -> bool {
        let (a, b) = (&self.types, &other.types);
        self.octets == other.octets && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
    }
}

/// Returns a dummy owner, for an encoder that does not outlive the bytes that it copies from.
fn no_owner() -> &'static Arc<dyn Any + Send + Sync> {
    static NO_OWNER: OnceLock<Arc<dyn Any + Send + Sync>> = OnceLock::new();
    NO_OWNER.get_or_init(|| Arc::new(()))
}

struct CdrForm {
    start: u8,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

impl CdrForm {
    const LOCAL: CdrForm =
        CdrForm { start: 0, endian: Endian::NATIVE, version: Version::GIOP_1_2, code_sets: CodeSets::UTF8_UTF16 };

    fn of(d: &Decoder<'_>, start: u8) -> CdrForm {
        CdrForm { start, endian: d.endian(), version: d.version(), code_sets: d.code_sets() }
    }
}

fn conforms(from: View<'_>, to: View<'_>) -> bool {
    let (mut from, mut to) = (from.unaliased(), to.unaliased());
    // A received type can contain itself, so the loop is bounded.
    for _ in 0..Limits::DEFAULT.max_nesting {
        let lengths = match (from.kind(), to.kind()) {
            (TypeCodeKind::String | TypeCodeKind::WString, TypeCodeKind::String | TypeCodeKind::WString) => {
                return true;
            }
            (TypeCodeKind::Char | TypeCodeKind::WChar, TypeCodeKind::Char | TypeCodeKind::WChar) => return true,
            (TypeCodeKind::Sequence, TypeCodeKind::Sequence) => true,
            (TypeCodeKind::Array, TypeCodeKind::Array) => from.length() == to.length(),
            _ => return from.to_type_code().equivalent(&to.to_type_code()),
        };
        match (from.content(), to.content()) {
            (Some(a), Some(b)) if lengths => (from, to) = (a.unaliased(), b.unaliased()),
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
        d.read_nested(|d| {
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

/// Compares types for equivalence and values for equality, as `DynAny::equal` does (CORBA 3.0.3
/// section 9.2.3.1). The encoding of a value matters only if it contains custom values.
impl PartialEq for AnyValue {
    fn eq(&self, other: &AnyValue) -> bool {
        self.type_code.equivalent(&other.type_code) && self.normal().same(&other.normal())
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
