//! Records of the Naming Service in a store, format 1.
//!
//! ```text
//! 01 "next"                                       -> u64: the next context's id
//! 01 "stamp"                                      -> u64: in the object ids of all contexts
//!                                                    but the initial one
//! 02 | u64 context                                -> empty
//! 03 | u64 context | u32 length of id | id | kind -> 00 | byte order | reference     an object
//!                                                    01 | u64 context                a context of this server
//!                                                    02 | byte order | reference     a context of another server
//! ```
//! Numbers are big-endian. A reference is in CDR, in the byte order that the octet before it gives
//! (1 is little-endian). Sorted by key, all contexts come before all bindings.

use corelane_wire::{Cdr, CdrError, Decoder, Encoder, Endian, Ior};

use super::cos_naming::NameComponent;
use super::state::{BindingTarget, BoundTarget, Change, ContextId, EncodedReference};
use crate::store::RecordFormat;

pub(super) const KIND: RecordFormat = RecordFormat { service: "naming", format: 1 };

/// The key of a number that distinguishes the object ids of a store from the ids of other stores.
pub(super) const STAMP_KEY: &[u8] = b"\x01stamp";
const NEXT_KEY: &[u8] = b"\x01next";
const CONTEXT: u8 = 2;
const BINDING: u8 = 3;

const OBJECT: u8 = 0;
const OWN_CONTEXT: u8 = 1;
const FOREIGN_CONTEXT: u8 = 2;

const NATIVE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 0 };
const OTHER_ORDER: u8 = 1 - NATIVE_ORDER;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NamingRecord {
    Stamp(u64),
    Change(Change),
}

/// A view of the record of a binding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredBinding<'r> {
    pub(super) context: ContextId,
    /// The id and the kind, in UTF-8.
    pub(super) name: (&'r [u8], &'r [u8]),
    pub(super) target: BoundTarget<'r>,
}

pub(super) struct RecordWrite {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

pub(super) fn encode(change: &Change) -> RecordWrite {
    match change {
        Change::AddContext(context) => RecordWrite { key: context_key(*context), value: Some(Vec::new()) },
        Change::RemoveContext(context) => RecordWrite { key: context_key(*context), value: None },
        Change::PutBinding { context, name, target } => {
            RecordWrite { key: binding_key(*context, name), value: Some(encode_target(target)) }
        }
        Change::RemoveBinding { context, name } => RecordWrite { key: binding_key(*context, name), value: None },
        Change::NextContext(next) => RecordWrite { key: NEXT_KEY.to_vec(), value: Some(next.to_be_bytes().to_vec()) },
    }
}

fn context_key(context: ContextId) -> Vec<u8> {
    [&[CONTEXT][..], &context.0.to_be_bytes()].concat()
}

fn binding_key(context: ContextId, name: &NameComponent) -> Vec<u8> {
    // Names that arrive in requests are shorter than 2^32 octets.
    let length = (name.id.len() as u32).to_be_bytes();
    [&[BINDING][..], &context.0.to_be_bytes(), &length, name.id.as_bytes(), name.kind.as_bytes()].concat()
}

fn encode_target(target: &BindingTarget) -> Vec<u8> {
    match target {
        BindingTarget::Object(reference) => [&[OBJECT, NATIVE_ORDER][..], reference].concat(),
        BindingTarget::Context(context) => [&[OWN_CONTEXT][..], &context.0.to_be_bytes()].concat(),
        BindingTarget::ForeignContext(reference) => [&[FOREIGN_CONTEXT, NATIVE_ORDER][..], reference].concat(),
    }
}

pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<NamingRecord, BadRecord> {
    if key == STAMP_KEY {
        return Ok(NamingRecord::Stamp(number(value)?));
    }
    if key == NEXT_KEY {
        return Ok(NamingRecord::Change(Change::NextContext(number(value)?)));
    }
    let (tag, context, name) = split_key(key)?;
    match tag {
        CONTEXT if name.is_empty() && value.is_empty() => Ok(NamingRecord::Change(Change::AddContext(context))),
        BINDING => {
            let [id, kind] = split_name(name)?.map(str::to_owned);
            let target = decode_target(value)?;
            Ok(NamingRecord::Change(Change::PutBinding { context, name: NameComponent { id, kind }, target }))
        }
        _ => Err(BadRecord),
    }
}

/// Reads the record of a binding without a copy. Returns `None` for another record, a damaged one,
/// and a reference in the other byte order.
pub(super) fn borrow_binding<'r>(key: &'r [u8], value: &'r [u8]) -> Option<StoredBinding<'r>> {
    let (BINDING, context, name) = split_key(key).ok()? else { return None };
    let name = split_name(name).ok()?;
    Some(StoredBinding { context, name: name.map(str::as_bytes).into(), target: borrow_target(value)? })
}

fn split_key(key: &[u8]) -> Result<(u8, ContextId, &[u8]), BadRecord> {
    let (tag, key) = key.split_first().ok_or(BadRecord)?;
    let (context, name) = key.split_at_checked(8).ok_or(BadRecord)?;
    Ok((*tag, ContextId(number(context)?), name))
}

/// Splits the octets of a name into id and kind.
fn split_name(name: &[u8]) -> Result<[&str; 2], BadRecord> {
    let (length, text) = name.split_first_chunk().ok_or(BadRecord)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadRecord)?;
    let (id, kind) = text.split_at_checked(length).ok_or(BadRecord)?;
    let text = |octets| std::str::from_utf8(octets).map_err(|_| BadRecord);
    Ok([text(id)?, text(kind)?])
}

fn number(octets: &[u8]) -> Result<u64, BadRecord> {
    octets.try_into().map(u64::from_be_bytes).map_err(|_| BadRecord)
}

fn decode_target(value: &[u8]) -> Result<BindingTarget, BadRecord> {
    match borrow_target(value) {
        Some(BoundTarget::Object(reference)) => return Ok(BindingTarget::Object(reference.into())),
        Some(BoundTarget::Context(context)) => return Ok(BindingTarget::Context(context)),
        Some(BoundTarget::ForeignContext(reference)) => return Ok(BindingTarget::ForeignContext(reference.into())),
        None => {}
    }
    match value {
        [OBJECT, OTHER_ORDER, reference @ ..] => Ok(BindingTarget::Object(convert_reference(reference)?)),
        [FOREIGN_CONTEXT, OTHER_ORDER, reference @ ..] => {
            Ok(BindingTarget::ForeignContext(convert_reference(reference)?))
        }
        _ => Err(BadRecord),
    }
}

/// Returns the target of a binding. Returns `None` if the value is damaged, or its reference is in
/// the other byte order.
fn borrow_target(value: &[u8]) -> Option<BoundTarget<'_>> {
    let is_native = |order: u8, reference| order == NATIVE_ORDER && check_reference(reference).is_ok();
    match value {
        [OBJECT, order, reference @ ..] if is_native(*order, reference) => Some(BoundTarget::Object(reference)),
        [OWN_CONTEXT, context @ ..] => Some(BoundTarget::Context(ContextId(number(context).ok()?))),
        [FOREIGN_CONTEXT, order, reference @ ..] if is_native(*order, reference) => {
            Some(BoundTarget::ForeignContext(reference))
        }
        _ => None,
    }
}

/// Converts a reference from the other byte order.
fn convert_reference(octets: &[u8]) -> Result<EncodedReference, BadRecord> {
    let mut decoder = Decoder::new(octets, if OTHER_ORDER == 0 { Endian::Big } else { Endian::Little });
    let ior = Ior::decode(&mut decoder).map_err(|_| BadRecord)?;
    if decoder.remaining_len() > 0 {
        return Err(BadRecord);
    }
    encode_reference(&ior).map_err(|_| BadRecord)
}

fn check_reference(octets: &[u8]) -> Result<(), CdrError> {
    let mut decoder = Decoder::new(octets, Endian::NATIVE);
    decoder.read_octet_sequence()?;
    for _ in 0..decoder.read_u32()? {
        decoder.read_u32()?;
        decoder.read_octet_sequence()?;
    }
    if decoder.remaining_len() == 0 { Ok(()) } else { Err(CdrError::UnsupportedForm) }
}

pub(super) fn encode_reference(ior: &Ior) -> Result<EncodedReference, CdrError> {
    let mut encoder = Encoder::new();
    ior.encode(&mut encoder)?;
    Ok(EncodedReference::from(encoder.to_vec()))
}

#[cfg(test)]
mod tests {
    use corelane_wire::ior::TaggedProfile;
    use proptest::prelude::*;

    use super::*;

    fn ior() -> Ior {
        let profiles =
            vec![TaggedProfile { tag: 0x1234_5678, data: vec![1, 2, 3] }, TaggedProfile { tag: 0, data: vec![] }];
        Ior { type_id: "IDL:a:1.0".to_owned(), profiles }
    }

    fn changes() -> Vec<Change> {
        let name = |id: &str, kind: &str| NameComponent { id: id.to_owned(), kind: kind.to_owned() };
        let context = ContextId(u64::MAX - 1);
        let reference = encode_reference(&ior()).unwrap();
        let bind = |name, target| Change::PutBinding { context, name, target };
        vec![
            Change::AddContext(context),
            Change::NextContext(7),
            bind(name("ä", ""), BindingTarget::Object(EncodedReference::clone(&reference))),
            bind(name("", "k"), BindingTarget::ForeignContext(reference)),
            bind(name("", ""), BindingTarget::Context(ContextId(3))),
        ]
    }

    #[test]
    fn records_decode_to_the_written_values() {
        for change in changes() {
            let RecordWrite { key, value } = encode(&change);
            assert_eq!(decode(&key, &value.unwrap()), Ok(NamingRecord::Change(change)));
        }
        assert_eq!(decode(STAMP_KEY, &[0, 0, 0, 0, 0, 0, 1, 2]), Ok(NamingRecord::Stamp(0x102)));
    }

    #[test]
    fn references_of_the_other_byte_order_are_converted() {
        for (order, endian) in [(0, Endian::Big), (1, Endian::Little)] {
            let mut encoder = Encoder::new();
            encoder.set_endian(endian);
            ior().encode(&mut encoder).unwrap();
            let value = [&[OBJECT, order][..], &encoder.to_vec()].concat();
            assert_eq!(decode_target(&value), Ok(BindingTarget::Object(encode_reference(&ior()).unwrap())));
        }
    }

    #[test]
    fn shortened_records_are_refused() {
        for change in changes() {
            let RecordWrite { key, value } = encode(&change);
            let value = value.unwrap();
            for length in 0..value.len() {
                assert_eq!(decode(&key, &value[..length]), Err(BadRecord), "{change:?}");
            }
            for length in 0..key.len().min(9) {
                assert_eq!(decode(&key[..length], &value), Err(BadRecord), "{change:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn accepted_records_are_written_in_the_same_form(
            tag in 0..5u8, key in prop::collection::vec(0..4u8, 0..24), value in prop::collection::vec(0..4u8, 0..40)
        ) {
            let key = [&[tag][..], &key].concat();
            if let Ok(NamingRecord::Change(change)) = decode(&key, &value) {
                let written = encode(&change);
                prop_assert_eq!(decode(&written.key, &written.value.unwrap()), Ok(NamingRecord::Change(change)));
                prop_assert_eq!(written.key, key);
            }
        }
    }
}
