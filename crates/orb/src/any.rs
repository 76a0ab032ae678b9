//! The IDL type `any`: a value of any IDL type, together with its type.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use corelane_wire::Value;
pub use corelane_wire::typecode::{TypeCode, TypeCodeError, TypeCodeKind};
use corelane_wire::{AnyValue, Cdr, CdrError, Decoder, Encoder, Fixed, Octets};

use crate::client::context::ClientContext;
use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::long_double::LongDouble;
use crate::object::{ObjectRef, Reference, read_reference, write_reference};
use crate::written_any::{self, WrittenContext};

/// A value of any IDL type, together with its TypeCode (IDL `any`; CORBA 3.0.3, section 4.11).
///
/// A received value stays encoded until the program extracts it, so a program can pass on values of
/// types that it does not know.
///
/// ```
/// use corelane::{Any, TypeCode};
/// let any = Any::new(&vec!["a".to_owned(), "b".to_owned()])?;
/// assert_eq!(any.type_code().to_string(), "sequence<string>");
/// assert_eq!(any.extract::<Vec<String>>()?, ["a", "b"]);
/// assert!(any.extract::<i32>().is_err());
/// # Ok::<(), corelane::SystemException>(())
/// ```
#[derive(Clone, Default)]
pub struct Any {
    value: AnyValue,
    client: Option<Arc<ClientContext>>,
}

impl Any {
    /// Returns an empty `any`, whose type is null.
    #[must_use]
    pub fn null() -> Any {
        Any::default()
    }

    /// Makes an `any` from a value of the Rust type `T`, whose IDL type is
    /// [`Typed::dynamic_type_code`].
    ///
    /// # Errors
    /// If the value cannot be marshalled, for example a string with a NUL.
    pub fn new<T: Typed>(value: &T) -> Result<Any, SystemException> {
        Any::write(&value.dynamic_type_code(), value)
    }

    /// Makes an `any` of a given IDL type, which may be more specific than the Rust type: an alias,
    /// a bounded type, `wstring` or `wchar`.
    ///
    /// ```
    /// use corelane::{Any, TypeCode};
    /// let any = Any::with_type(&TypeCode::wstring(8), &"wide".to_owned())?;
    /// assert_eq!(any.extract::<String>()?, "wide");
    /// # Ok::<(), corelane::SystemException>(())
    /// ```
    ///
    /// # Errors
    /// BAD_PARAM if `T` does not represent `type_code`, and the errors of [`new`](Any::new).
    pub fn with_type<T: Typed>(type_code: &TypeCode, value: &T) -> Result<Any, SystemException> {
        if !T::matches_type(type_code) {
            return Err(mismatch(SystemExceptionKind::BadParam, &T::type_code(), type_code));
        }
        Any::write(type_code, value)
    }

    pub(crate) fn from_wire(value: AnyValue, client: Option<Arc<ClientContext>>) -> Any {
        Any { value, client }
    }

    pub(crate) fn client(&self) -> Option<&Arc<ClientContext>> {
        self.client.as_ref()
    }

    fn write<T: Typed>(type_code: &TypeCode, value: &T) -> Result<Any, SystemException> {
        let (written, WrittenContext { client, types }) =
            written_any::record(|| AnyValue::from_writer(type_code, |e| value.write(e, type_code)));
        Ok(Any { value: written?.with_value_types(types), client })
    }

    /// Makes an `any` from a value tree and its type.
    ///
    /// # Errors
    /// BAD_PARAM if the tree is not a value of this type.
    pub fn from_value(type_code: &TypeCode, value: &Value) -> Result<Any, SystemException> {
        Ok(Any { value: AnyValue::from_value(type_code, value)?, client: None })
    }

    /// Returns the TypeCode of the value.
    #[must_use]
    pub fn type_code(&self) -> &TypeCode {
        self.value.type_code()
    }

    /// Returns true if a received value type in the `any`, or in an `any` nested in it, was
    /// truncated to a known base type.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.value.is_truncated()
    }

    /// Returns true if `T` represents the type of the value.
    #[must_use]
    pub fn is<T: Typed>(&self) -> bool {
        T::matches_type(self.type_code())
    }

    /// Extracts the value as a `T`, if `T` represents the value's type.
    ///
    /// # Errors
    /// BAD_OPERATION if `T` does not represent the value's type; MARSHAL if the bytes of the value
    /// cannot be decoded.
    pub fn extract<T: Typed>(&self) -> Result<T, SystemException> {
        if !self.is::<T>() {
            return Err(mismatch(SystemExceptionKind::BadOperation, &T::type_code(), self.type_code()));
        }
        let values = self.value.value_read_state();
        let mut d = self.value.decoder().with_value_read_state(&values);
        if let Some(client) = &self.client {
            d = d.with_decoding_context(client);
        }
        Ok(T::read(&mut d, self.type_code())?)
    }

    pub(crate) fn encode_value(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        #[cfg(feature = "valuetype")]
        if let Some(client) = &self.client {
            let convert = client.value_functions().convert_custom;
            let values = self.value.value_read_state().with_lookup_and_converter(None, convert);
            return self.value.encode_value_from(
                &mut self.value.decoder().with_value_read_state(&values).with_decoding_context(client),
                e,
            );
        }
        self.value.encode_value(e)
    }

    /// Returns the value as a tree, for programs that do not know the type at compile time.
    ///
    /// # Errors
    /// MARSHAL if the bytes of the value cannot be decoded; IMP_LIMIT or MARSHAL for a value with
    /// more than 2^20 parts.
    pub fn value(&self) -> Result<Value, SystemException> {
        Ok(self.value.value()?)
    }

    /// Returns an `any` with the same value and an equivalent type.
    ///
    /// # Errors
    /// BAD_PARAM if the type is not equivalent.
    pub fn retyped(&self, type_code: &TypeCode) -> Result<Any, SystemException> {
        Ok(Any { value: self.value.clone().with_type(type_code)?, client: self.client.clone() })
    }
}

#[cold]
fn mismatch(kind: SystemExceptionKind, wanted: &TypeCode, found: &TypeCode) -> SystemException {
    SystemException::new(kind, 0, Completion::No).with_message(format!("{wanted} does not represent {found}"))
}

/// Values in different encodings can be equal. Their types must be equivalent.
impl PartialEq for Any {
    fn eq(&self, other: &Any) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value, f)
    }
}

impl Cdr for Any {
    const MIN_SIZE: usize = AnyValue::MIN_SIZE;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        if let Some(client) = &self.client {
            written_any::record_orb(client);
        }
        self.value.value_types().for_each(written_any::record_type);
        self.type_code().encode(e)?;
        self.encode_value(e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Any, CdrError> {
        Ok(Any { value: AnyValue::decode(d)?, client: crate::object::client_of(d).cloned() })
    }
}

/// A Rust type that represents one or more IDL types, so that an [`Any`] can contain its values.
///
/// Generated code implements the trait for structures, unions, enumerations, exceptions and typed
/// references.
pub trait Typed: Sized {
    /// Returns the default IDL type of the Rust type: a string or sequence has no bound, and text
    /// is `string` or `char`.
    fn type_code() -> TypeCode;

    /// Returns the IDL type of this value, which may be more specific than the default IDL type.
    fn dynamic_type_code(&self) -> TypeCode {
        Self::type_code()
    }

    /// Returns true if the Rust type represents `type_code`. By default, it represents each type
    /// that is [equivalent](TypeCode::equivalent) to [`Typed::type_code`].
    #[must_use]
    fn matches_type(type_code: &TypeCode) -> bool {
        type_code.equivalent(&Self::type_code())
    }

    /// Writes the value in the encoding of `type_code`.
    ///
    /// # Errors
    /// If the type cannot represent the value.
    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError>;

    /// Reads a value of `type_code`.
    ///
    /// # Errors
    /// If the bytes are not a value of this type.
    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Self, CdrError>;

    #[doc(hidden)]
    fn write_all(values: &[Self], e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        values.iter().try_for_each(|value| value.write(e, type_code))
    }

    /// Reads `len` values of `type_code`.
    #[doc(hidden)]
    fn read_many(len: usize, d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Vec<Self>, CdrError> {
        d.read_nested(|d| {
            let mut list = Vec::with_capacity(len.min(1024));
            for _ in 0..len {
                list.push(Self::read(d, type_code)?);
            }
            Ok(list)
        })
    }
}

macro_rules! by_cdr {
    ($($rust:ty => $type_code:expr,)*) => {$(
        impl Typed for $rust {
            fn type_code() -> TypeCode {
                $type_code
            }

            fn write(&self, e: &mut Encoder<'_>, _: &TypeCode) -> Result<(), CdrError> {
                self.encode(e)
            }

            fn read(d: &mut Decoder<'_>, _: &TypeCode) -> Result<Self, CdrError> {
                Cdr::decode(d)
            }

            fn write_all(values: &[Self], e: &mut Encoder<'_>, _: &TypeCode) -> Result<(), CdrError> {
                Cdr::encode_all(values, e)
            }

            fn read_many(len: usize, d: &mut Decoder<'_>, _: &TypeCode) -> Result<Vec<Self>, CdrError> {
                Cdr::decode_many(len, d)
            }
        }
    )*};
}

by_cdr! {
    bool => TypeCode::BOOLEAN,
    u8 => TypeCode::OCTET,
    i8 => TypeCode::OCTET,
    i16 => TypeCode::SHORT,
    u16 => TypeCode::USHORT,
    i32 => TypeCode::LONG,
    u32 => TypeCode::ULONG,
    i64 => TypeCode::LONG_LONG,
    u64 => TypeCode::ULONG_LONG,
    f32 => TypeCode::FLOAT,
    f64 => TypeCode::DOUBLE,
    LongDouble => TypeCode::LONG_DOUBLE,
    Any => TypeCode::ANY,
    TypeCode => TypeCode::TYPE_CODE,
}

impl<const DIGITS: u8, const SCALE: u8> Typed for Fixed<DIGITS, SCALE> {
    fn type_code() -> TypeCode {
        TypeCode::fixed(DIGITS.into(), SCALE.into()).unwrap_or(TypeCode::NULL)
    }

    fn write(&self, e: &mut Encoder<'_>, _: &TypeCode) -> Result<(), CdrError> {
        self.encode(e)
    }

    fn read(d: &mut Decoder<'_>, _: &TypeCode) -> Result<Self, CdrError> {
        Cdr::decode(d)
    }
}

fn bound(type_code: &TypeCode) -> u32 {
    type_code.length().filter(|length| *length > 0).unwrap_or(u32::MAX)
}

impl Typed for char {
    fn type_code() -> TypeCode {
        TypeCode::CHAR
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        matches!(type_code.unaliased().kind(), TypeCodeKind::Char | TypeCodeKind::WChar)
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        if type_code.unaliased().kind() == TypeCodeKind::WChar { e.write_wchar(*self) } else { e.write_char(*self) }
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<char, CdrError> {
        if type_code.unaliased().kind() == TypeCodeKind::WChar { d.read_wchar() } else { d.read_char() }
    }
}

impl Typed for String {
    fn type_code() -> TypeCode {
        TypeCode::STRING
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        matches!(type_code.unaliased().kind(), TypeCodeKind::String | TypeCodeKind::WString)
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        let resolved = type_code.unaliased();
        match resolved.kind() {
            TypeCodeKind::WString => e.write_bounded_wstr(self, bound(&resolved)),
            _ => e.write_bounded_str(self, bound(&resolved)),
        }
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<String, CdrError> {
        let resolved = type_code.unaliased();
        match resolved.kind() {
            TypeCodeKind::WString => d.read_bounded_wstring(bound(&resolved)),
            _ => d.read_bounded_string(bound(&resolved)),
        }
    }
}

fn is_list_of<T: Typed>(type_code: &TypeCode, kind: TypeCodeKind, length: Option<usize>) -> bool {
    let resolved = type_code.unaliased();
    let fits = length.is_none_or(|length| resolved.length().is_some_and(|found| found as usize == length));
    resolved.kind() == kind && fits && resolved.content_type().is_some_and(|element| T::matches_type(&element))
}

fn element(type_code: &TypeCode) -> Result<TypeCode, CdrError> {
    type_code.unaliased().content_type().ok_or(CdrError::TypeMismatch)
}

impl<T: Typed> Typed for Vec<T> {
    fn type_code() -> TypeCode {
        TypeCode::sequence(T::type_code(), 0).unwrap_or(TypeCode::NULL)
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        is_list_of::<T>(type_code, TypeCodeKind::Sequence, None)
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        let element = element(type_code)?;
        e.write_len_bounded(self.len(), bound(&type_code.unaliased()))?;
        T::write_all(self, e, &element)
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Vec<T>, CdrError> {
        let element = element(type_code)?;
        // An element of a type of size 0, for example a structure without members, has no bytes.
        // Any other element has at least one byte.
        let len = d.read_len_bounded(size_of::<T>().min(1), bound(&type_code.unaliased()))?;
        T::read_many(len, d, &element)
    }
}

impl Typed for Octets {
    fn type_code() -> TypeCode {
        TypeCode::sequence(TypeCode::OCTET, 0).unwrap_or(TypeCode::NULL)
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        is_list_of::<u8>(type_code, TypeCodeKind::Sequence, None)
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        if self.len() > bound(&type_code.unaliased()) as usize {
            return Err(CdrError::SequenceOverBound);
        }
        self.encode(e)
    }

    fn read(d: &mut Decoder<'_>, _: &TypeCode) -> Result<Octets, CdrError> {
        d.read_octet_sequence_owned()
    }
}

impl<T: Typed, const N: usize> Typed for [T; N] {
    fn type_code() -> TypeCode {
        TypeCode::array(T::type_code(), u32::try_from(N).unwrap_or(u32::MAX)).unwrap_or(TypeCode::NULL)
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        is_list_of::<T>(type_code, TypeCodeKind::Array, Some(N))
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        T::write_all(self, e, &element(type_code)?)
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<[T; N], CdrError> {
        let list = T::read_many(N, d, &element(type_code)?)?;
        list.try_into().map_err(|_| CdrError::Truncated)
    }
}

impl<T: Typed, const N: usize> Typed for Box<[T; N]> {
    fn type_code() -> TypeCode {
        <[T; N]>::type_code()
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        <[T; N]>::matches_type(type_code)
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        (**self).write(e, type_code)
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Box<[T; N]>, CdrError> {
        let element = element(type_code)?;
        let list = (0..N).map(|_| T::read(d, &element)).collect::<Result<Vec<T>, _>>()?;
        list.into_boxed_slice().try_into().map_err(|_| CdrError::Truncated)
    }
}

/// If two received pairs have the same key, the map keeps the later pair.
impl<K: Typed + Ord, V: Typed> Typed for BTreeMap<K, V> {
    fn type_code() -> TypeCode {
        TypeCode::map(K::type_code(), V::type_code(), 0).unwrap_or(TypeCode::NULL)
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        let resolved = type_code.unaliased();
        let pair =
            resolved.content_type().filter(|_| resolved.kind() == TypeCodeKind::Sequence).map(|pair| pair.unaliased());
        pair.is_some_and(|pair| {
            let (key, value) = (pair.member_type(0), pair.member_type(1));
            (pair.kind(), pair.member_count(), pair.id()) == (TypeCodeKind::Struct, 2, "")
                && key.is_some_and(|key| K::matches_type(&key))
                && value.is_some_and(|value| V::matches_type(&value))
        })
    }

    fn write(&self, e: &mut Encoder<'_>, type_code: &TypeCode) -> Result<(), CdrError> {
        let pair = element(type_code)?.unaliased();
        let (Some(key_type), Some(value_type)) = (pair.member_type(0), pair.member_type(1)) else {
            return Err(CdrError::TypeMismatch);
        };
        e.write_len_bounded(self.len(), bound(&type_code.unaliased()))?;
        self.iter().try_for_each(|(key, value)| {
            key.write(e, &key_type)?;
            value.write(e, &value_type)
        })
    }

    fn read(d: &mut Decoder<'_>, type_code: &TypeCode) -> Result<Self, CdrError> {
        let pair = element(type_code)?.unaliased();
        let (Some(key_type), Some(value_type)) = (pair.member_type(0), pair.member_type(1)) else {
            return Err(CdrError::TypeMismatch);
        };
        let len = d.read_len_bounded(1, bound(&type_code.unaliased()))?;
        d.read_nested(|d| (0..len).map(|_| Ok((K::read(d, &key_type)?, V::read(d, &value_type)?))).collect())
    }
}

/// A typed reference whose interface has a TypeCode. Generated code implements the trait.
pub trait ReferenceWithTypeCode: Reference {
    /// Returns the TypeCode of the interface.
    fn interface_type() -> TypeCode;
}

impl ReferenceWithTypeCode for ObjectRef {
    fn interface_type() -> TypeCode {
        TypeCode::OBJECT
    }
}

/// An `Option<R>` represents the interface of the reference type `R`. An `Option<ObjectRef>`
/// represents each type of the kind `ObjRef`.
impl<R: ReferenceWithTypeCode> Typed for Option<R> {
    fn type_code() -> TypeCode {
        R::interface_type()
    }

    fn matches_type(type_code: &TypeCode) -> bool {
        let object =
            R::REPOSITORY_ID == ObjectRef::REPOSITORY_ID && type_code.unaliased().kind() == TypeCodeKind::ObjRef;
        object || type_code.equivalent(&R::interface_type())
    }

    fn write(&self, e: &mut Encoder<'_>, _: &TypeCode) -> Result<(), CdrError> {
        write_reference(e, self.as_ref())
    }

    fn read(d: &mut Decoder<'_>, _: &TypeCode) -> Result<Option<R>, CdrError> {
        read_reference(d)
    }
}
