//! References, types, values, exceptions and events can be printed with any octet at any position.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::{
    Any, Cdr, Completion, Endpoint, Event, Orb, SystemException, SystemExceptionKind, TypeCode, TypeCodeKind,
};
use corelane_tests::any::Failed;
use corelane_tests::{Probe, ProbeRef, Refused};
use corelane_wire::ior::Ior;
use corelane_wire::{CdrError, Decoder, Encoder};

fn debug(value: &impl Debug) {
    let mut text = String::new();
    write!(text, "{value:?} {value:#?}").expect("Debug does not fail");
}

fn encoded(value: &impl Cdr) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder).unwrap();
    encoder.slices().collect::<Vec<_>>().concat()
}

/// Replaces each octet by each of the 256 values, and prints what can be decoded. Returns the
/// number of decoded values.
fn with_every_octet<T>(
    octets: &[u8],
    read: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
    print: impl Fn(&T),
) -> usize {
    let (mut count, endian) = (0, Encoder::new().endian());
    let mut changed = octets.to_vec();
    for at in 0..octets.len() {
        for octet in 0..=u8::MAX {
            changed[at] = octet;
            if let Ok(value) = read(&mut Decoder::new(&changed, endian)) {
                print(&value);
                count += 1;
            }
        }
        changed[at] = octets[at];
    }
    count
}

fn references() -> Vec<Ior> {
    // The number distinguishes the sockets of tests that run at the same time.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("corelane-text-{}-{number}", std::process::id()));
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").listen(format!("unix:{}", path.display())).build().unwrap();
    let poa = orb.root_poa();
    let id = poa.activate_object(&Probe::servant(corelane_tests::TestProbe::default())).unwrap();
    let reference = poa.id_to_reference(&id).unwrap();
    vec![reference.ior().clone(), Ior { type_id: "IDL:x:1.0".into(), profiles: Vec::new() }]
}

#[test]
fn references_with_every_octet_are_printed_and_read_again() {
    let orb = Orb::new().unwrap();
    for ior in references() {
        let octets = encoded(&ior);
        let count = with_every_octet(&octets, Ior::decode, |ior| {
            debug(ior);
            ior.known_profiles().for_each(|profile| debug(&profile));
        });
        assert!(count > 256 * 8, "{count}");
        let sent = |octets: &[u8]| {
            let mut text = "IOR:".to_owned();
            // The byte order and three octets of padding, which preserve the alignment of `octets`.
            [u8::from(cfg!(target_endian = "little")), 0, 0, 0]
                .iter()
                .chain(octets)
                .for_each(|octet| write!(text, "{octet:02x}").unwrap());
            text
        };
        let mut changed = octets.clone();
        for at in 0..octets.len() {
            for octet in 0..=u8::MAX {
                changed[at] = octet;
                let Ok(Some(object)) = orb.string_to_object(&sent(&changed)) else { continue };
                debug(&object);
                let mut text = String::new();
                write!(text, "{object}").expect("Display does not fail");
                match orb.string_to_object(&text).unwrap() {
                    Some(again) => assert!(again.is_equivalent(&object), "octet {at} is {octet}"),
                    None => assert!(object.ior().profiles.is_empty(), "octet {at} is {octet}"),
                }
                let typed = ProbeRef::from_object(object);
                write!(text, "{typed}{typed:?}").expect("Display of a typed reference does not fail");
            }
            changed[at] = octets[at];
        }
    }
}

#[test]
fn reference_with_a_nul_in_its_type_id_is_printed_without_the_nul() {
    let orb = Orb::new().unwrap();
    let mut ior = references().remove(0);
    let mut octets = encoded(&ior);
    octets[6] = 0;
    let text = octets.iter().fold("IOR:01000000".to_owned(), |text, octet| format!("{text}{octet:02x}"));
    let object = orb.string_to_object(&text).unwrap().unwrap();
    assert!(object.type_id().contains('\0'));
    ior.type_id = String::new();
    assert_eq!(object.to_string(), ior.to_text().unwrap());
}

fn types() -> Vec<TypeCode> {
    let (id, name) = ("IDL:x:1.0", "x");
    let long = || TypeCode::LONG;
    let members = || vec![("a", long()), ("b", TypeCode::string(7))];
    vec![
        TypeCode::structure(id, name, members()).unwrap(),
        TypeCode::exception(id, name, members()).unwrap(),
        TypeCode::enumeration(id, name, ["a", "b"]).unwrap(),
        TypeCode::alias(id, name, TypeCode::sequence(long(), 3).unwrap()).unwrap(),
        TypeCode::interface(TypeCodeKind::ObjRef, id, name).unwrap(),
        TypeCode::interface(TypeCodeKind::AbstractInterface, id, name).unwrap(),
        TypeCode::interface(TypeCodeKind::LocalInterface, id, name).unwrap(),
        TypeCode::value_box(id, name, TypeCode::array(long(), 3).unwrap()).unwrap(),
        TypeCode::fixed(5, 2).unwrap(),
        TypeCode::wstring(3),
    ]
}

#[test]
fn types_with_every_octet_are_printed() {
    for code in types() {
        let count = with_every_octet(&encoded(&code), TypeCode::decode, |code| {
            debug(code);
            let mut text = String::new();
            write!(text, "{code}").expect("Display does not fail");
        });
        assert!(count >= 256, "{code}: {count}");
    }
}

#[test]
fn values_and_exceptions_with_every_octet_are_printed() {
    let text = Any::new(&"text".to_owned()).unwrap();
    let anys = [
        text.clone(),
        Any::new(&'x').unwrap(),
        Any::new(&text).unwrap(),
        Any::new(&types().remove(0)).unwrap(),
        Any::new(&Failed { why: "why".into(), value: text.clone() }).unwrap(),
    ];
    for any in anys {
        let count = with_every_octet(&encoded(&any), Any::decode, debug);
        assert!(count >= 256, "{any:?}: {count}");
    }
    let print = |exception: &dyn std::error::Error| {
        let mut text = String::new();
        write!(text, "{exception} {exception:?} {exception:#?}").expect("an exception can be printed");
    };
    let refused = Refused { code: 1, why: "because".into() };
    assert!(with_every_octet(&encoded(&refused), Refused::decode, |refused| print(refused)) >= 256);
    let failed = Failed { why: "why".into(), value: text };
    assert!(with_every_octet(&encoded(&failed), Failed::decode, |failed| print(failed)) >= 256);
    for bit in 0..32 {
        for minor in [1 << bit, u32::MAX << bit, 0x4f4d_0000 | 1 << bit] {
            let exception = SystemException::new(SystemExceptionKind::Unknown, minor, Completion::Maybe);
            print(&exception);
        }
    }
}

#[test]
fn events_with_every_octet_are_printed() {
    for octet in 0..=u8::MAX {
        for operation in [String::from(char::from(octet)), String::from_utf8_lossy(&[b'a', octet, b'b']).into_owned()] {
            let listener = Endpoint::unix(std::ffi::OsString::from(&operation));
            let events = [
                Event::ServantPanicked {
                    interface: "IDL:x:1.0",
                    operation: operation.clone(),
                    message: operation.clone(),
                },
                Event::AcceptFailed { listener, error: operation.clone() },
                Event::ThreadFailed { message: operation.clone() },
            ];
            for event in events {
                debug(&event);
                let mut text = String::new();
                write!(text, "{event}").expect("Display does not fail");
            }
        }
    }
}
