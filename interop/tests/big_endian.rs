//! A big-endian peer on plain sockets, built from Corelane's encoder, as a client of Corelane's
//! server and as a server for Corelane's client.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use corelane::{LongDouble, Octets, Orb};
use corelane_interop::interop::*;
use corelane_interop::skips::Skips;
use corelane_interop::suite::checks;
use corelane_interop::suite::options::{Characters, ClientOptions};
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_interop::suite::values::{Random, Sample, SampleOptions};
use corelane_wire::codeset::{CodeSetContext, CodeSetInfo};
use corelane_wire::exception::{Completion, SystemExceptionBody, SystemExceptionKind};
use corelane_wire::giop::{
    self, Header, LocateRequest, LocateStatus, MessageKind, Reply, ReplyStatus, Request, RequestHeader,
    ResponseExpected, ServiceContext, TargetAddress, context_id,
};
use corelane_wire::ior::{Ior, ProfileAddress, TaggedComponent, TaggedProfile};
use corelane_wire::{
    Cdr, CdrError, CharSet, CodeSets, Decoder, Encoder, Endian, Limits, Scratch, Version, WideByteOrder,
};

const VERSIONS: [Version; 3] = [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2];
const LIMITS: Limits = Limits::DEFAULT;

/// Defines types for narrow and wide characters and strings, which IDL maps to `char` and `String`
/// but marshals differently.
macro_rules! texts {
    ($($name:ident($inner:ty), $least:expr, $write:ident, $read:ident;)*) => { $(
        #[derive(Clone, Debug, PartialEq)]
        struct $name($inner);

        impl Cdr for $name {
            const MIN_SIZE: usize = $least;

            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
                e.$write(self.0.clone().as_value())
            }

            fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
                d.$read().map(Self)
            }
        }
    )* };
}

trait AsValue {
    type Value<'v>
    where
        Self: 'v;
    fn as_value(&self) -> Self::Value<'_>;
}

impl AsValue for char {
    type Value<'v> = char;
    fn as_value(&self) -> char {
        *self
    }
}

impl AsValue for String {
    type Value<'v> = &'v str;
    fn as_value(&self) -> &str {
        self
    }
}

texts! {
    Letter(char), 1, write_char, read_char;
    WideLetter(char), 1, write_wchar, read_wchar;
    WideText(String), 4, write_wstr, read_wstring;
}

macro_rules! every_echo {
    ($use:ident) => {
        $use! {
            echo_octet: u8 = u8::of;
            echo_boolean: bool = bool::of;
            echo_char: Letter = |r| Letter(r.narrow_char());
            echo_short: i16 = i16::of;
            echo_ushort: u16 = u16::of;
            echo_long: i32 = i32::of;
            echo_ulong: u32 = u32::of;
            echo_longlong: i64 = i64::of;
            echo_ulonglong: u64 = u64::of;
            echo_float: f32 = f32::of;
            echo_double: f64 = f64::of;
            echo_longdouble: LongDouble = LongDouble::of;
            echo_string: String = |r| r.text(40);
            echo_short_name: String = |r| r.short_name();
            echo_colour: Colour = Colour::of;
            echo_customer_id: i32 = i32::of;
            echo_octet_seq: Octets = |r| r.octets(300);
            echo_boolean_seq: Vec<bool> = |r| r.sequence(9, bool::of);
            echo_char_seq: Vec<Letter> = |r| r.sequence(9, |r| Letter(r.narrow_char()));
            echo_short_seq: Vec<i16> = |r| r.sequence(9, i16::of);
            echo_ushort_seq: Vec<u16> = |r| r.sequence(9, u16::of);
            echo_long_seq: Vec<i32> = |r| r.sequence(40, i32::of);
            echo_ulong_seq: Vec<u32> = |r| r.sequence(9, u32::of);
            echo_longlong_seq: Vec<i64> = |r| r.sequence(9, i64::of);
            echo_ulonglong_seq: Vec<u64> = |r| r.sequence(9, u64::of);
            echo_float_seq: Vec<f32> = |r| r.sequence(9, f32::of);
            echo_double_seq: Vec<f64> = |r| r.sequence(9, f64::of);
            echo_string_seq: Vec<String> = |r| r.sequence(6, |r| r.text(10));
            echo_short_name_seq: Vec<String> = |r| r.sequence(6, Random::short_name);
            echo_colour_seq: Vec<Colour> = |r| r.sequence(9, Colour::of);
            echo_customer_list: Vec<i32> = |r| r.sequence(9, i32::of);
            echo_bounded_long_seq: Vec<i32> = |r| r.sequence(4, i32::of);
            echo_bounded_octet_seq: Octets = |r| r.octets(16);
            echo_bounded_string_seq: Vec<String> = |r| r.sequence(3, |r| r.text(10));
            echo_long_seq_seq: Vec<Vec<i32>> = |r| r.sequence(5, |r| r.sequence(40, i32::of));
            echo_bounded_nested_seq: Vec<Vec<String>> = |r| r.sequence(2, |r| r.sequence(3, |r| r.text(10)));
            echo_point_seq: Vec<Point> = |r| r.sequence(12, Point::of);
            echo_mixed_seq: Vec<Mixed> = |r| r.sequence(5, Mixed::of);
            echo_gapped_seq: Vec<Gapped> = |r| r.sequence(30, Gapped::of);
            echo_person_seq: Vec<Person> = |r| r.sequence(4, Person::of);
            echo_matrix_seq: Vec<Matrix> = |r| r.sequence(3, |r| r.array(|r| r.array(f64::of)));
            echo_on_colour_seq: Vec<OnColour> = |r| r.sequence(4, OnColour::of);
            echo_point: Point = Point::of;
            echo_mixed: Mixed = Mixed::of;
            echo_gapped: Gapped = Gapped::of;
            echo_segment: Segment = Segment::of;
            echo_person: Person = Person::of;
            echo_keywords: Keywords = Keywords::of;
            echo_tree: Tree = Tree::of;
            echo_record: Record = Record::of;
            echo_on_boolean: OnBoolean = OnBoolean::of;
            echo_on_char: OnChar = OnChar::of;
            echo_on_short: OnShort = OnShort::of;
            echo_on_ushort: OnUShort = OnUShort::of;
            echo_on_long: OnLong = OnLong::of;
            echo_on_ulong: OnULong = OnULong::of;
            echo_on_longlong: OnLongLong = OnLongLong::of;
            echo_on_ulonglong: OnULongLong = OnULongLong::of;
            echo_on_colour: OnColour = OnColour::of;
            echo_octet_array: OctetArray = |r| r.array(u8::of);
            echo_long_array: LongArray = |r| r.array(i32::of);
            echo_matrix: Matrix = |r| r.array(|r| r.array(f64::of));
            echo_cube: Cube = |r| r.array(|r| r.array(|r| r.array(i16::of)));
            echo_string_array: StringArray = |r| r.array(|r| r.text(12));
            echo_point_array: PointArray = |r| r.array(Point::of);
            echo_person_array: PersonArray = |r| r.array(Person::of);
            echo_long_seq_array: LongSeqArray = |r| r.array(|r| r.sequence(40, i32::of));
            echo_long_array_rows: LongArrayRows = |r| r.array(|r| r.array(i32::of));
            echo_large_array: LargeArray = |r| LargeArray::from(r.array(u8::of));
            echo_wchar: WideLetter = |r| WideLetter(r.wide_char());
            echo_wstring: WideText = |r| WideText(r.wide_string(40));
            echo_short_wide_name: WideText = |r| WideText(r.wide_string(6));
            echo_wchar_seq: Vec<WideLetter> = |r| r.sequence(9, |r| WideLetter(r.wide_char()));
            echo_wstring_seq: Vec<WideText> = |r| r.sequence(4, |r| WideText(r.wide_string(8)));
            echo_wchar_array: [WideLetter; 4] = |r| r.array(|r| WideLetter(r.wide_char()));
            echo_wide_record: WideRecord = WideRecord::of;
        }
    };
}

fn left_out(server: &str, client: &str, version: Version) -> Vec<String> {
    let skips = Skips::for_pair(server, client, &format!("giop-1.{}", version.minor)).unwrap();
    skips.client_options().into_iter().map(str::to_owned).collect()
}

fn is_wide(operation: &str) -> bool {
    ["wchar", "wstring", "wide"].iter().any(|word| operation.contains(word))
}

fn receive(socket: &mut TcpStream) -> Option<(Header, Vec<u8>)> {
    let mut message = vec![0; Header::LEN];
    socket.read_exact(&mut message).ok()?;
    let header = Header::parse(message[..].try_into().unwrap()).unwrap();
    message.resize(header.total_len(), 0);
    socket.read_exact(&mut message[Header::LEN..]).ok()?;
    Some((header, message))
}

fn big_endian(version: Version, code_sets: CodeSets) -> Encoder<'static> {
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    e.set_version(version);
    e.set_code_sets(code_sets);
    e
}

struct RawClient {
    socket: TcpStream,
    key: Vec<u8>,
    version: Version,
    code_sets: CodeSets,
    next_id: u32,
    /// Maximum size in octets of the body of each fragment, a multiple of 8. With `None`, requests
    /// are not fragmented.
    fragment: Option<usize>,
}

impl RawClient {
    fn echo<T: Cdr + PartialEq + Debug>(&mut self, operation: &str, a: &T, b: &T) {
        self.next_id += 2;
        let data = CodeSetContext::from(self.code_sets).data();
        let context = [ServiceContext { id: context_id::CODE_SETS, data: &data }];
        let negotiates = self.version != Version::GIOP_1_0;
        let head = RequestHeader {
            version: self.version,
            request_id: self.next_id,
            response_expected: ResponseExpected::Target,
            target: TargetAddress::Key(&self.key),
            operation: operation.as_bytes(),
            contexts: if negotiates { &context } else { &[] },
        };
        let mut e = big_endian(self.version, self.code_sets);
        giop::write_request_header(&mut e, &head).unwrap();
        a.encode(&mut e).unwrap();
        b.encode(&mut e).unwrap();
        giop::finish_message(&mut e).unwrap();
        let mut message = e.to_vec();
        if let Some(size) = self.fragment {
            message = fragmented(&message, size, self.next_id);
        }
        self.socket.write_all(&message).unwrap();

        let (header, message) = receive(&mut self.socket).expect("a reply");
        let reply = Reply::parse(&message, &header, &LIMITS).unwrap();
        assert_eq!((reply.request_id, reply.status), (self.next_id, ReplyStatus::NoException), "{operation}");
        let scratch = Scratch::new();
        let mut body = reply.body().with_code_sets(self.code_sets).with_limits(&LIMITS).with_scratch(&scratch);
        for (place, expected) in [("result", a), ("inout", a), ("out", b)] {
            assert_eq!(&T::decode(&mut body).unwrap(), expected, "{operation}, {place} in {:?}", self.version);
        }
        assert_eq!(body.remaining_len(), 0, "{operation}");
    }

    fn every_echo(&mut self) {
        let repertoire = SampleOptions { characters: Characters::Ascii, only_labelled_discriminators: false };
        let random = |round| Random::new(round, repertoire);
        let narrow_only = left_out("corelane", "big-endian", self.version).contains(&"--no-wide".to_owned());
        macro_rules! call {
            ($($operation:ident: $t:ty = $value:expr;)*) => { $(
                let operation = stringify!($operation);
                if !(narrow_only && is_wide(operation)) {
                    let value: fn(&mut Random) -> $t = $value;
                    for round in 0..6 {
                        self.echo(operation, &value(&mut random(round)), &value(&mut random(round + 1)));
                    }
                }
            )* };
        }
        every_echo!(call);
    }
}

/// Splits a message into fragments, each with at most `size` octets of the message's body. `size`
/// is a multiple of 8.
fn fragmented(message: &[u8], size: usize, id: u32) -> Vec<u8> {
    let mut rest = &message[Header::LEN..];
    let mut all = Vec::new();
    let mut kind = message[7];
    let mut first = true;
    while first || !rest.is_empty() {
        // Each part ends at a multiple of 8 octets.
        let room = if first { size - 4 } else { size };
        let (now, later) = rest.split_at(room.min(rest.len()));
        let id_octets: &[u8] = if first { &[] } else { &id.to_be_bytes() };
        let length = u32::try_from(now.len() + id_octets.len()).unwrap();
        let flags = if later.is_empty() { 0 } else { 2 };
        all.extend(b"GIOP\x01\x02");
        all.extend([flags, kind]);
        all.extend(length.to_be_bytes());
        all.extend(id_octets);
        all.extend(now);
        rest = later;
        kind = 7;
        first = false;
    }
    all
}

fn server() -> Orb {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let suite =
        poa.activate(&servants::suite_servant(SuiteServant::new(&poa, orb.shutdown_handle()).unwrap())).unwrap();
    poa.manager().activate().unwrap();
    orb.register_initial_reference("Suite", &suite).unwrap();
    orb
}

fn raw_client(orb: &Orb, version: Version) -> RawClient {
    let suite = orb.resolve_initial_references("Suite").unwrap();
    let key = suite.ior().profiles[0].parse().unwrap().object_key.to_vec();
    let corelane::Endpoint::Tcp { host, port } = &orb.endpoints()[0] else { panic!("no TCP endpoint") };
    let socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    let code_sets = if version == Version::GIOP_1_0 { CodeSets::DEFAULT } else { CodeSets::UTF8_UTF16 };
    RawClient { socket, key, version, code_sets, next_id: 0, fragment: None }
}

#[test]
fn corelane_serves_a_big_endian_client() {
    let orb = server();
    for version in VERSIONS {
        raw_client(&orb, version).every_echo();
    }
}

#[test]
fn corelane_serves_a_big_endian_client_that_sends_fragments() {
    let orb = server();
    for size in [8, 24, 1000] {
        let mut client = raw_client(&orb, Version::GIOP_1_2);
        client.fragment = Some(size);
        client.every_echo();
    }
}

/// Decodes the arguments `a` and `b` of an echo operation, and encodes its results `a`, `a` and
/// `b`.
fn answer<T: Cdr>(arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Result<(), CdrError> {
    let (a, b) = (T::decode(arguments)?, T::decode(arguments)?);
    assert_eq!(arguments.remaining_len(), 0);
    a.encode(reply)?;
    a.encode(reply)?;
    b.encode(reply)
}

fn answer_request(request: &Request<'_>, code_sets: CodeSets, reply: &mut Encoder<'_>) {
    let scratch = Scratch::new();
    let mut arguments = request.body().with_code_sets(code_sets).with_limits(&LIMITS).with_scratch(&scratch);
    giop::begin_reply(reply, request.version, request.request_id, ReplyStatus::NoException, &[]).unwrap();
    macro_rules! operation {
        ($($operation:ident: $t:ty = $value:expr;)*) => {
            match std::str::from_utf8(request.operation).unwrap() {
                $(stringify!($operation) => answer::<$t>(&mut arguments, reply).unwrap(),)*
                _ => {
                    reply.clear();
                    let status = ReplyStatus::SystemException;
                    giop::begin_reply(reply, request.version, request.request_id, status, &[]).unwrap();
                    let kind = SystemExceptionKind::BadOperation;
                    SystemExceptionBody { kind, minor: 7, completed: Completion::No }.write(reply);
                }
            }
        };
    }
    every_echo!(operation);
    giop::finish_message(reply).unwrap();
}

fn serve_connection(mut socket: TcpStream, fragment: Option<usize>) {
    let mut announced = None;
    while let Some((header, message)) = receive(&mut socket) {
        let standing = match header.version {
            Version::GIOP_1_0 => CodeSets::DEFAULT,
            _ => announced.unwrap_or(CodeSets::LATIN1_UTF16),
        };
        let mut reply = big_endian(header.version, standing);
        let mut answered = 0;
        match header.kind {
            MessageKind::Request => {
                let request = Request::parse(&message, &header, &LIMITS).unwrap();
                let context = request.contexts.find(context_id::CODE_SETS);
                if let Some(data) = context {
                    announced = CodeSetContext::parse(data).unwrap().code_sets(WideByteOrder::SpecifiedOrder);
                }
                let code_sets =
                    if header.version == Version::GIOP_1_0 { standing } else { announced.unwrap_or(standing) };
                reply.set_code_sets(code_sets);
                answered = request.request_id;
                answer_request(&request, code_sets, &mut reply);
            }
            MessageKind::LocateRequest => {
                let request = LocateRequest::parse(&message, &header, &LIMITS).unwrap();
                giop::begin_locate_reply(&mut reply, header.version, request.request_id, LocateStatus::ObjectHere);
                giop::finish_message(&mut reply).unwrap();
            }
            _ => return,
        }
        let mut message = reply.to_vec();
        if let (MessageKind::Request, Some(size)) = (header.kind, fragment) {
            message = fragmented(&message, size, answered);
        }
        if socket.write_all(&message).is_err() {
            return;
        }
    }
}

/// Starts a server that runs until the test program ends, and returns its reference. If `fragment`
/// is present, each fragment of a reply has at most this many octets of the reply's body.
fn raw_server(version: Version, fragment: Option<usize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            thread::spawn(move || serve_connection(socket.unwrap(), fragment));
        }
    });
    let components = [TaggedComponent::code_sets(&CodeSetInfo::for_native(CharSet::Utf8)).unwrap()];
    let address = ProfileAddress::Inet { host: "127.0.0.1", port };
    let profile = TaggedProfile::encode(version, address, b"suite", &components).unwrap();
    let ior = Ior { type_id: "IDL:corelane/Interop/Suite:1.0".into(), profiles: vec![profile] };
    ior.to_text().unwrap()
}

fn calls_every_echo(version: Version, fragment: Option<usize>) {
    let mut words = vec![raw_server(version, fragment)];
    words.extend(left_out("big-endian", "corelane", version));
    let options = ClientOptions::parse(words.into_iter()).unwrap();
    let (passed, failed) = checks::run_echo_checks(options).unwrap();
    assert!(passed >= 65 && failed == 0, "{passed} passed, {failed} failed in {version:?}, fragments {fragment:?}");
}

#[test]
fn corelane_calls_a_big_endian_server() {
    for version in VERSIONS {
        calls_every_echo(version, None);
    }
}

#[test]
fn corelane_calls_a_big_endian_server_that_sends_fragments() {
    for size in [8, 24, 1000] {
        calls_every_echo(Version::GIOP_1_2, Some(size));
    }
}
