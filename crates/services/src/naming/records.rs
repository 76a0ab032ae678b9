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
use super::state::{BindingTarget, Change, ContextId, EncodedReference};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NamingRecord {
    Stamp(u64),
    Change(Change),
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
    let order = u8::from(Endian::NATIVE == Endian::Little);
    match target {
        BindingTarget::Object(reference) => [&[OBJECT, order][..], reference].concat(),
        BindingTarget::Context(context) => [&[OWN_CONTEXT][..], &context.0.to_be_bytes()].concat(),
        BindingTarget::ForeignContext(reference) => [&[FOREIGN_CONTEXT, order][..], reference].concat(),
    }
}

pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<NamingRecord, BadRecord> {
    if key == STAMP_KEY {
        return Ok(NamingRecord::Stamp(number(value)?));
    }
    if key == NEXT_KEY {
        return Ok(NamingRecord::Change(Change::NextContext(number(value)?)));
    }
    let (tag, key) = key.split_first().ok_or(BadRecord)?;
    let (context, name) = key.split_at_checked(8).ok_or(BadRecord)?;
    let context = ContextId(number(context)?);
    match *tag {
        CONTEXT if name.is_empty() && value.is_empty() => Ok(NamingRecord::Change(Change::AddContext(context))),
        BINDING => {
            let (length, text) = name.split_first_chunk().ok_or(BadRecord)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadRecord)?;
            let (id, kind) = text.split_at_checked(length).ok_or(BadRecord)?;
            let field = |octets: &[u8]| String::from_utf8(octets.to_vec()).map_err(|_| BadRecord);
            let name = NameComponent { id: field(id)?, kind: field(kind)? };
            Ok(NamingRecord::Change(Change::PutBinding { context, name, target: decode_target(value)? }))
        }
        _ => Err(BadRecord),
    }
}

fn number(octets: &[u8]) -> Result<u64, BadRecord> {
    octets.try_into().map(u64::from_be_bytes).map_err(|_| BadRecord)
}

fn decode_target(value: &[u8]) -> Result<BindingTarget, BadRecord> {
    match value {
        [OBJECT, order, reference @ ..] => Ok(BindingTarget::Object(decode_reference(*order, reference)?)),
        [OWN_CONTEXT, context @ ..] => Ok(BindingTarget::Context(ContextId(number(context)?))),
        [FOREIGN_CONTEXT, order, reference @ ..] => {
            Ok(BindingTarget::ForeignContext(decode_reference(*order, reference)?))
        }
        _ => Err(BadRecord),
    }
}

fn decode_reference(order: u8, octets: &[u8]) -> Result<EncodedReference, BadRecord> {
    let order = match order {
        0 => Endian::Big,
        1 => Endian::Little,
        _ => return Err(BadRecord),
    };
    if order == Endian::NATIVE {
        check_reference(octets, order).map_err(|_| BadRecord)?;
        return Ok(EncodedReference::from(octets));
    }
    let mut decoder = Decoder::new(octets, order);
    let ior = Ior::decode(&mut decoder).map_err(|_| BadRecord)?;
    if decoder.remaining_len() > 0 {
        return Err(BadRecord);
    }
    encode_reference(&ior).map_err(|_| BadRecord)
}

fn check_reference(octets: &[u8], order: Endian) -> Result<(), CdrError> {
    let mut decoder = Decoder::new(octets, order);
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
            assert_eq!(decode_reference(order, &encoder.to_vec()), Ok(encode_reference(&ior()).unwrap()));
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
