//! The exception for a marshalling error names the path of the wrong member.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{CdrError, Encoder, Event, Operation, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::scripted::{REPLY, message, reply_start, serve};

corelane::include_idl!("paths");

use paths::desk::TakeError;
use paths::*;

struct TheDesk;

impl Desk for TheDesk {
    fn take(&self, wanted: &Order, _: &[&str]) -> Result<Order, TakeError> {
        Ok(wanted.clone())
    }

    fn give(&self, which: i32) -> Result<(Order, WordList), TakeError> {
        match which {
            0 => Ok((wanted("b\0"), Vec::new())),
            1 => Ok((wanted("b"), vec!["good".to_owned(), "too long".to_owned()])),
            _ => Err(Refused { why: "\0".to_owned() }.into()),
        }
    }

    fn choose(&self, choice: &Pick) -> Result<Pick, SystemException> {
        Ok(choice.clone())
    }

    fn say(&self, _: &str) -> Result<(), SystemException> {
        Ok(())
    }
}

fn wanted(name: &str) -> Order {
    let item = |name: &str| Item { name: name.to_owned(), form: 'f' };
    Order { id: 1, items: vec![item("a"), item(name)], words: vec!["w".to_owned()] }
}

fn said(kind: Kind, exception: &SystemException) -> String {
    assert_eq!(exception.kind(), kind, "{exception}");
    exception.detail().map(|detail| detail.message.clone()).unwrap_or_default()
}

fn system<T: std::fmt::Debug>(outcome: Result<T, TakeError>) -> SystemException {
    match outcome.unwrap_err() {
        TakeError::System(exception) => exception,
        TakeError::Refused(refused) => panic!("{refused:?}"),
    }
}

fn answered(body: Vec<u8>) -> (Orb, DeskRef) {
    let server = serve(0, move |stream, id| {
        stream.write_all(&message(REPLY, false, &[reply_start(id, 0), body.clone()].concat()))
    });
    let orb = Orb::builder().build().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@{}/Key", server.address)).unwrap().unwrap();
    (orb, DeskRef::from_object(object))
}

fn octets(write: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(corelane_wire::Endian::Little);
    write(&mut e);
    e.to_vec()
}

fn write_wanted(e: &mut Encoder<'_>, items: u32, second: &[u8], words: &[&str]) {
    e.write_i32(1);
    e.write_u32(items);
    e.write_str("a").unwrap();
    e.write_u8(b'f');
    e.write_u32(u32::try_from(second.len()).unwrap());
    e.write_bytes(second);
    e.write_u8(b'f');
    e.write_u32(u32::try_from(words.len()).unwrap());
    words.iter().for_each(|word| e.write_str(word).unwrap());
}

#[test]
fn unreadable_reply_names_the_member() {
    let cases: [(&str, &str, Vec<u8>); 6] = [
        ("result.id", "the octets end before the value does", octets(|e| e.write_u8(1))),
        ("result.items", "a count announces more elements", octets(|e| write_wanted(e, 1 << 20, b"b\0", &[]))),
        ("result.items[1].name", "a string does not end with NUL", octets(|e| write_wanted(e, 2, b"bc", &[]))),
        ("result.words", "a bounded sequence has more", octets(|e| write_wanted(e, 2, b"b\0", &["a", "b", "c"]))),
        ("result.words[1]", "a bounded string is longer", octets(|e| write_wanted(e, 2, b"b\0", &["a", "bcdef"]))),
        ("result.items[1].form", "the octets end before the value does", {
            let mut all = octets(|e| write_wanted(e, 2, b"b\0", &[]));
            all.truncate(22);
            all
        }),
    ];
    for (path, what, body) in cases {
        let (_orb, desk) = answered(body);
        let said = said(Kind::Marshal, &system(desk.take(&wanted("b"), &[])));
        assert!(said.starts_with(what) && said.contains(&format!(", in {path}, at octet ")), "{path}: {said}");
        assert!(said.ends_with(" of the reply"), "{said}");
    }
}

#[test]
fn unreadable_union_in_a_reply_names_the_member() {
    let (_orb, desk) = answered(octets(|e| {
        e.write_bool(true);
        write_wanted(e, 2, b"bc", &[]);
    }));
    let exception = desk.choose(&Pick::Word("w".to_owned())).unwrap_err();
    let said = said(Kind::Marshal, &exception);
    assert!(said.contains(", in result.wanted.items[1].name, at octet "), "{said}");
}

#[test]
fn unreadable_out_argument_names_the_member() {
    let (_orb, desk) = answered(octets(|e| write_wanted(e, 2, b"b\0", &["a"])));
    let TakeError::System(exception) = desk.give(1).unwrap_err() else { panic!("another exception is raised") };
    let said = said(Kind::Marshal, &exception);
    assert!(said.contains(", in words, at octet "), "{said}");
}

#[test]
fn unwritable_argument_names_the_member() {
    let (_orb, desk) = answered(Vec::new());
    let cases = [
        ("argument wanted.items[1].name", Kind::BadParam, wanted("\0"), vec![]),
        ("argument wanted.words", Kind::Marshal, Order { words: vec![String::new(); 3], ..wanted("") }, vec![]),
        (
            "argument wanted.items[0].form",
            Kind::DataConversion,
            {
                let mut wanted = wanted("");
                wanted.items[0].form = '\u{4e00}';
                wanted
            },
            vec![],
        ),
        ("argument words", Kind::Marshal, wanted(""), vec!["a", "b", "c"]),
        ("argument words[1]", Kind::Marshal, wanted(""), vec!["a", "bcdef"]),
    ];
    for (path, kind, wanted, words) in cases {
        let said = said(kind, &system(desk.take(&wanted, &words)));
        assert!(said.ends_with(&format!(", in {path}")), "{path}: {said}");
    }
    let said = said(Kind::BadParam, &desk.say("a\0b").unwrap_err());
    assert!(said.ends_with(", in argument text"), "{said}");
}

/// Makes an ORB with an object for collocated calls. In such a call the server's exception arrives
/// unchanged.
fn here() -> (Orb, DeskRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let id = poa.activate_object(&Desk::servant(TheDesk)).unwrap();
    poa.manager().activate().unwrap();
    let desk = DeskRef::from_object(poa.id_to_reference(&id).unwrap());
    (orb, desk)
}

#[test]
fn server_names_the_member_of_an_unreadable_argument() {
    let (_orb, desk) = here();
    type Write = fn(&mut Encoder<'_>);
    let cases: [(&str, &str, Write); 5] = [
        ("take", "wanted.items[1].name", |e| write_wanted(e, 2, b"bc", &[])),
        ("take", "wanted.words[0]", |e| write_wanted(e, 2, b"b\0", &["abcdef"])),
        ("take", "words", |e| write_wanted(e, 2, b"b\0", &[])),
        ("take", "words[1]", |e| {
            write_wanted(e, 2, b"b\0", &[]);
            e.write_u32(2);
            e.write_str("a").unwrap();
            e.write_str("abcdef").unwrap();
        }),
        ("say", "text", |e| e.write_u32(5)),
    ];
    for (operation, path, write) in cases {
        let arguments = |e: &mut Encoder<'_>| -> Result<(), CdrError> {
            write(e);
            Ok(())
        };
        let exception = desk.as_object().invoke(&Operation::new(operation), &arguments).unwrap_err();
        let said = said(Kind::Marshal, &exception);
        assert!(said.contains(&format!(", in argument {path}, at octet ")), "{path}: {said}");
        assert!(said.ends_with(" of the request"), "{said}");
    }
}

#[test]
fn server_names_the_member_of_an_unwritable_result() {
    let (_orb, desk) = here();
    for (which, kind, path) in [
        (0, Kind::BadParam, "result.items[1].name"),
        (1, Kind::Marshal, "words[1]"),
        (2, Kind::BadParam, "exception member why"),
    ] {
        let arguments = |e: &mut Encoder<'_>| {
            e.write_i32(which);
            Ok(())
        };
        let exception = desk.as_object().invoke_raising(&Operation::new("give"), &arguments).unwrap_err();
        let said = said(kind, &exception);
        assert!(said.ends_with(&format!(", in {path}")), "{path}: {said}");
    }
}

#[test]
fn event_names_the_unreadable_argument_of_a_remote_client() {
    let refused = Arc::new(Mutex::new("refused requests", LockScope::Orb, Vec::new()));
    let list = Arc::clone(&refused);
    let tell = move |event: &Event| {
        if let Event::RequestRefused { exception, .. } = event {
            list.lock().push(exception.clone());
        }
    };
    let server = Orb::builder().listen("tcp:127.0.0.1:0").on_event(tell).build().unwrap();
    let poa = server.root_poa();
    let id = poa.activate_object(&Desk::servant(TheDesk)).unwrap();
    poa.manager().activate().unwrap();
    let reference = poa.id_to_reference(&id).unwrap().to_string();
    let client = Orb::builder().build().unwrap();
    let object = client.string_to_object(&reference).unwrap().unwrap();
    let arguments = |e: &mut Encoder<'_>| {
        write_wanted(e, 2, b"bc", &[]);
        Ok(())
    };
    let exception = object.invoke(&Operation::new("take"), &arguments).unwrap_err();
    assert_eq!((exception.kind(), exception.minor()), (Kind::Marshal, CdrError::StringNotTerminated.minor()));
    let end = Instant::now() + Duration::from_secs(60);
    while refused.lock().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = said(Kind::Marshal, &refused.lock()[0]);
    assert!(said.contains(", in argument wanted.items[1].name, at octet "), "{said}");
}
