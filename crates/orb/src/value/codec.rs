//! The encoding of values in messages.

use std::any::Any;
use std::sync::Arc;

use corelane_wire::cdr::{RepositoryIds, ValueHead, ValueReadState};
use corelane_wire::{CdrError, Decoder, Encoder};

use super::factories::{ValueFactories, ValueFactory};
use super::object::{ValueBase, ValueInfo, ValueKind};
use super::region::ValueRegion;
use super::{RegionLink, ValueRef};
use crate::client::context::ClientContext;
#[cfg(feature = "any")]
use crate::client::context::ValueFunctions;

/// For generated code: writes a value, or null.
///
/// # Errors
/// The errors of the values' members. [`CdrError::MalformedValuetype`] for a value that its graph
/// has not defined, or whose graph no longer exists.
pub fn write_value<T: ?Sized>(e: &mut Encoder<'_>, value: Option<&ValueRef<T>>) -> Result<(), CdrError> {
    match value {
        Some(value) => write_in_region(e, value.region(), value.index()),
        None => {
            e.write_null_value();
            Ok(())
        }
    }
}

fn write_in_region(e: &mut Encoder<'_>, region: Option<Arc<ValueRegion>>, index: u32) -> Result<(), CdrError> {
    let region = region.ok_or(CdrError::MalformedValuetype)?;
    let object = region.get(index).ok_or(CdrError::MalformedValuetype)?;
    let info = object.info();
    let ids = info.ids.get(..=info.truncatable_count).ok_or(CdrError::MalformedValuetype)?;
    let identity = (Arc::as_ptr(&region).addr(), index);
    let keep = || -> Arc<dyn Any + Send + Sync> { Arc::clone(&region) as _ };
    let Some(written) = e.begin_value(identity, keep, ids, info.is_custom || info.truncatable_count > 0)? else {
        return Ok(());
    };
    #[cfg(feature = "any")]
    crate::written_any::record_value_type(info.repository_id(), info.type_code);
    object.encode(e)?;
    e.end_value(written)
}

/// For generated code: reads a value, or null.
///
/// # Errors
/// [`CdrError::NoValueFactory`] for a value of an unknown type that cannot be truncated to a known
/// type; [`CdrError::UnexpectedValuetype`] for a value that is not a `T`; the errors of the wire
/// format.
pub fn read_value<T: ValueKind + ?Sized>(d: &mut Decoder<'_>) -> Result<Option<ValueRef<T>>, CdrError> {
    let read = read_in_region(d, T::REPOSITORY_ID, T::INFO)?;
    Ok(read.map(|(link, index)| ValueRef::from_parts(link, index)))
}

fn read_in_region(
    d: &mut Decoder<'_>,
    expected: &'static str,
    own: Option<&'static ValueInfo>,
) -> Result<Option<(RegionLink, u32)>, CdrError> {
    let space = d.value_read_state().ok_or(CdrError::UnsupportedForm)?;
    let outermost = space.enclosing_value_count() == 0;
    let index = match d.read_value_head()? {
        ValueHead::Null => return Ok(None),
        ValueHead::Indirection(index, position) => {
            match region_of(space)?.info(index) {
                Some(info) if info.is_a(expected) => {}
                Some(_) => return Err(CdrError::UnexpectedValuetype),
                None => {
                    d.read_nested(|d| d.reread_value(index, position, |d| read_in_region(d, expected, own).map(drop)))?
                }
            }
            index
        }
        ValueHead::Value(start) => {
            let region = region_of(space)?;
            region.set_open(true);
            let factory = find_factory(d, &start.repository_ids, start.is_chunked, expected, own)?;
            // The state may refer to the value itself, so the value gets its type before the state
            // is read.
            region.set_info(start.value_number, factory.info);
            d.enter_nesting()?;
            // Blocks of slots double in size, so up to half of the slots can be unused. The charge
            // for a slot is therefore twice its size.
            d.charge(2 * ValueRegion::SLOT_SIZE)?;
            let object = factory.read(d)?;
            d.charge(size_of_val(&*object) + BLOCK)?;
            d.leave_nesting();
            d.end_value(&start)?;
            region.define(start.value_number, factory.info, object);
            start.value_number
        }
    };
    let region = region_of(space)?;
    if outermost {
        region.set_open(false);
        Ok(Some((RegionLink::Owner(region), index)))
    } else {
        Ok(Some((RegionLink::Inside(Arc::downgrade(&region)), index)))
    }
}

/// Assumed overhead of the allocator for each block in bytes.
const BLOCK: usize = 24;

fn region_of(space: &ValueReadState) -> Result<Arc<ValueRegion>, CdrError> {
    space.user_data(|| ValueRegion::open()).downcast().map_err(|_| CdrError::UnsupportedForm)
}

/// Returns the factory for the first known id of `ids`, or for `expected` if `ids` is empty. Fails
/// if the factory's type is not `expected` and does not inherit from it. A value that is not
/// chunked cannot be truncated, so no id after the first counts.
fn find_factory(
    d: &Decoder<'_>,
    ids: &RepositoryIds<'_>,
    chunked: bool,
    expected: &'static str,
    own: Option<&'static ValueInfo>,
) -> Result<ValueFactory, CdrError> {
    let registered = factories(d);
    let known = |id: &[u8]| {
        let own = || own.filter(|_| id == expected.as_bytes()).map(ValueFactory::plain);
        registered.and_then(|factories| factories.find(id)).or_else(own)
    };
    let ids = ids.as_slice();
    if ids.is_empty() {
        return known(expected.as_bytes()).ok_or(CdrError::NoValueFactory);
    }
    for (at, id) in ids.iter().enumerate() {
        if at > 0 && !chunked {
            break;
        }
        let Some(factory) = known(id) else { continue };
        return if factory.info.is_a(expected) { Ok(factory) } else { Err(CdrError::UnexpectedValuetype) };
    }
    Err(CdrError::NoValueFactory)
}

#[cfg(feature = "any")]
pub(crate) const FUNCTIONS: ValueFunctions =
    ValueFunctions { look_up_type: Some(known_type), convert_custom: Some(convert_custom) };

#[cfg(feature = "any")]
fn known_type(env: &(dyn Any + Sync), id: &[u8]) -> Option<crate::TypeCode> {
    factories_of(env)?.type_of(id)
}

#[cfg(feature = "any")]
fn convert_custom(d: &mut Decoder<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
    let value = read_value::<ValueBase>(d)?;
    write_value(e, value.as_ref())
}

fn factories<'m>(d: &Decoder<'m>) -> Option<&'m ValueFactories> {
    factories_of(d.decoding_context()?)
}

fn factories_of(env: &dyn Any) -> Option<&ValueFactories> {
    match env.downcast_ref::<Arc<ClientContext>>() {
        Some(client) => client.value_factories(),
        None => env.downcast_ref(),
    }
}

const _: () = {
    assert!(size_of::<Option<ValueRef<ValueBase>>>() <= 24);
};

#[cfg(all(test, feature = "any"))]
mod tests {
    use corelane_wire::cdr::{Cdr, Endian};
    use corelane_wire::{CodeSets, Version};

    use super::*;
    use crate::any::{Any, TypeCode};
    use crate::mapping::{StaticTypeCode, TypedValue, ValueType, description};

    #[derive(Clone, Debug, PartialEq)]
    struct Stamp {
        number: i32,
        exact: f64,
    }

    impl ValueType for Stamp {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.number);
            e.write_f64(self.exact);
            Ok(())
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Stamp { number: d.read_i32()?, exact: d.read_f64()? })
        }
    }

    crate::value_type! { Stamp = ["IDL:Stamp:1.0"], custom true }

    static STAMP_TYPE: StaticTypeCode = description::value("IDL:Stamp:1.0", "Stamp", 1, None, &[]);

    impl TypedValue for Stamp {
        fn value_type() -> TypeCode {
            TypeCode::from_description(&STAMP_TYPE)
        }
    }

    fn message() -> (Vec<u8>, Endian) {
        let foreign = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
        let mut e = Encoder::new();
        e.set_endian(foreign);
        e.write_u32(2);
        let stamp = ValueRef::new(Stamp { number: 7, exact: 0.5 });
        for _ in 0..2 {
            Stamp::value_type().encode(&mut e).unwrap();
            write_value(&mut e, Some(&stamp)).unwrap();
        }
        (e.to_vec(), foreign)
    }

    fn received(env: &(dyn std::any::Any + Sync)) -> Vec<Any> {
        let (octets, foreign) = message();
        let space = ValueReadState::new().with_lookup_and_converter(FUNCTIONS.look_up_type, FUNCTIONS.convert_custom);
        let mut d = Decoder::new(&octets, foreign)
            .with_code_sets(CodeSets::UTF8_UTF16)
            .with_value_read_state(&space)
            .with_decoding_context(env);
        let list = Vec::<Any>::decode(&mut d).unwrap();
        assert_eq!((list.len(), d.remaining_len()), (2, 0));
        list
    }

    #[test]
    fn a_custom_value_in_another_byte_order_is_converted_only_by_an_orb_that_knows_it() {
        let factories = ValueFactories::new();
        factories.register::<Stamp>();
        for (known, list) in [(true, received(&factories)), (false, received(&ValueFactories::new()))] {
            for any in &list {
                let stamp = any.extract::<Option<ValueRef<Stamp>>>().unwrap().unwrap();
                assert_eq!(*stamp.get(), Stamp { number: 7, exact: 0.5 });
                let encoded = |endian| {
                    let mut e = Encoder::new();
                    e.set_endian(endian);
                    e.set_code_sets(CodeSets::UTF8_UTF16);
                    any.encode(&mut e)
                };
                let (native, foreign) = (encoded(Endian::NATIVE), encoded(message().1));
                let refused = Err(CdrError::CustomValueNotConvertible);
                assert_eq!((native, foreign), if known { (Ok(()), refused) } else { (refused, Ok(())) });
            }
        }
    }

    #[test]
    fn received_custom_values_of_known_types_can_be_sent_in_any_encoding() {
        let orb = crate::Orb::new().unwrap();
        orb.value_factories().register::<Stamp>();
        let list = received(orb.core().client());
        let nested = Any::new(&list[1]).unwrap();
        for (endian, code_sets, version) in [
            (message().1, CodeSets::UTF8_UTF16, Version::GIOP_1_2),
            (Endian::NATIVE, CodeSets::LATIN1_UTF16, Version::GIOP_1_2),
            (message().1, CodeSets::DEFAULT, Version::GIOP_1_1),
        ] {
            let mut e = Encoder::new();
            e.set_endian(endian);
            e.set_code_sets(code_sets);
            e.set_version(version);
            for any in list.iter().chain([&nested]) {
                any.encode(&mut e).unwrap();
            }
            let (octets, space) = (e.to_vec(), orb.core().value_read_state());
            let d = Decoder::new(&octets, endian).with_code_sets(code_sets).with_version(version);
            let mut d = d.with_value_read_state(&space).with_decoding_context(orb.core().client());
            let [first, second, nested] = [(); 3].map(|()| Any::decode(&mut d).unwrap());
            for any in [first, second, nested.extract::<Any>().unwrap()] {
                let stamp = any.extract::<Option<ValueRef<Stamp>>>().unwrap().unwrap();
                assert_eq!(*stamp.get(), Stamp { number: 7, exact: 0.5 });
            }
        }
    }
}
