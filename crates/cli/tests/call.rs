//! Tests of `corelane call` and `corelane idl dump` as processes.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::{Any, Orb, Servant, SystemException, TypeCode, TypeCodeKind, Value};
use corelane_wire::typecode::ValueMember;
use serde_json::{Value as Json, json};

const IDL: &str = r#"
    #pragma prefix "test"
    module Yard {
      valuetype Mark { public string type; };
      valuetype Heavy : Mark { public long tons; };
    };
    module Shop {
      enum Colour { red, green };
      struct Item { string name; long count; Colour shade; sequence<double> prices; };
      union Choice switch (long) { case 1: string text; case 2: Item thing; default: boolean flag; };
      valuetype Mark { public long at; };
      valuetype Label string;
      valuetype Link : truncatable Mark { public Label name; private Link next; };
      abstract interface Described { string describe(); };
      valuetype Heavy : Mark supports Described { public double weight; };
      valuetype AnyBox any;
      struct Pair { string type; any value; };
      valuetype PairBox Pair;
      exception Missing { string what; };
      typedef fixed<7, 2> Money;
      const long MOST = 3 * 4;
      interface Base { readonly attribute long level; };
      interface Counter : Base {
        Item more(in Item it, in long by, inout Choice which, out any last) raises (Missing);
        any same(in any value);
        oneway void note(in string text);
        string told(in long by) context ("user", "site.*");
        Mark marked(in Mark m, out ValueBase again);
        Described given(in Described d);
        AnyBox kept(in AnyBox b, inout ValueBase v);
        Yard::Mark stored(in Yard::Mark m);
      };
      interface Other { void note(in string text); };
    };
"#;

fn item() -> TypeCode {
    let colour = TypeCode::enumeration("IDL:test/Shop/Colour:1.0", "Colour", ["red", "green"]).unwrap();
    let prices = TypeCode::sequence(TypeCode::DOUBLE, 0).unwrap();
    let members = [("name", TypeCode::STRING), ("count", TypeCode::LONG), ("shade", colour), ("prices", prices)];
    TypeCode::structure("IDL:test/Shop/Item:1.0", "Item", members).unwrap()
}

fn choice() -> TypeCode {
    let arm = |label, name: &str, ty| corelane_wire::typecode::UnionMember { label, name: name.into(), ty };
    let arms =
        [arm(Some(1), "text", TypeCode::STRING), arm(Some(2), "thing", item()), arm(None, "flag", TypeCode::BOOLEAN)];
    TypeCode::union("IDL:test/Shop/Choice:1.0", "Choice", TypeCode::LONG, arms).unwrap()
}

fn mark() -> TypeCode {
    let at = ValueMember { name: "at".into(), ty: TypeCode::LONG, is_public: true };
    TypeCode::value("IDL:test/Shop/Mark:1.0", "Mark", 0, None, [at]).unwrap()
}

fn heavy() -> TypeCode {
    let weight = ValueMember { name: "weight".into(), ty: TypeCode::DOUBLE, is_public: true };
    TypeCode::value("IDL:test/Shop/Heavy:1.0", "Heavy", 0, Some(mark()), [weight]).unwrap()
}

fn any_box() -> TypeCode {
    TypeCode::value_box("IDL:test/Shop/AnyBox:1.0", "AnyBox", TypeCode::ANY).unwrap()
}

fn yard() -> [TypeCode; 2] {
    let member = |name: &str, ty| ValueMember { name: name.into(), ty, is_public: true };
    let place = [member("type", TypeCode::STRING)];
    let mark = TypeCode::value("IDL:test/Yard/Mark:1.0", "Mark", 0, None, place).unwrap();
    let tons = [member("tons", TypeCode::LONG)];
    let heavy = TypeCode::value("IDL:test/Yard/Heavy:1.0", "Heavy", 0, Some(mark.clone()), tons).unwrap();
    [mark, heavy]
}

const DESCRIBED: TypeCodeKind = TypeCodeKind::AbstractInterface;

struct Counter;

impl DynamicServant for Counter {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:test/Shop/Counter:1.0", "IDL:test/Shop/Base:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        match request.operation() {
            "more" => {
                let arguments = request.arguments(&[item(), TypeCode::LONG, choice()])?;
                let by: i32 = arguments[1].extract()?;
                if by < 0 {
                    let missing = [("what", TypeCode::STRING)];
                    let missing = TypeCode::exception("IDL:test/Shop/Missing:1.0", "Missing", missing).unwrap();
                    let what = Value::Struct(vec![Value::String("things".into())]);
                    return request.raise(&Any::from_value(&missing, &what)?);
                }
                let Value::Struct(mut members) = arguments[0].value()? else { panic!("an item is a structure") };
                members[1] = Value::Long(by + 1);
                let more = Any::from_value(&item(), &Value::Struct(members))?;
                request.reply(&[more, arguments[2].clone(), Any::new(&Any::new(&by)?)?])
            }
            "same" => {
                let arguments = request.arguments(&[TypeCode::ANY])?;
                request.reply(&arguments)
            }
            "note" => request.arguments(&[TypeCode::STRING]).map(drop),
            "told" => {
                request.arguments(&[TypeCode::LONG])?;
                let told = format!("{:?}", request.context()?);
                request.reply(&[Any::new(&told)?])
            }
            "marked" => {
                let arguments = request.arguments(&[mark()])?;
                let again = Any::from_value(&TypeCode::VALUE_BASE, &arguments[0].value()?)?;
                request.reply(&[arguments[0].clone(), again])
            }
            "given" => {
                let described = TypeCode::interface(DESCRIBED, "IDL:test/Shop/Described:1.0", "Described").unwrap();
                let arguments = request.arguments(&[described])?;
                request.reply(&arguments)
            }
            "kept" => {
                let arguments = request.arguments(&[any_box(), TypeCode::VALUE_BASE])?;
                request.reply(&arguments)
            }
            "stored" => {
                let [mark, _] = yard();
                let arguments = request.arguments(&[mark])?;
                request.reply(&arguments)
            }
            "_get_level" => request.reply(&[Any::new(&7i32)?]),
            _ => Err(SystemException::bad_operation()),
        }
    }
}

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("shop.idl");
    fs::write(&file, IDL).unwrap();
    file
}

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn operation_is_called_with_the_types_of_its_idl() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    for type_code in [heavy(), any_box()].iter().chain(&yard()) {
        orb.value_factories().register_type(type_code);
    }
    let poa = orb.root_poa();
    let id = poa.activate_object(&Servant::dynamic(Counter)).unwrap();
    poa.manager().activate().unwrap();
    let reference = poa.id_to_reference(&id).unwrap().to_string();
    let idl = file("call");
    let call = |words: &[&str]| {
        let idl = idl.to_string_lossy().into_owned();
        let output = corelane(&[&["call", "--idl", &idl, &reference], words].concat());
        (output.status.code().unwrap(), said(&output))
    };
    let json = |(status, text): (i32, String)| (status, serde_json::from_str::<Json>(&text).expect(&text));
    let it = r#"{"name": "nail", "count": 1, "shade": "green", "prices": [0.5, 2]}"#;

    let more = json(call(&["more", it, "4", r#"{"text": "yes"}"#]));
    let expected = json!({
        "result": { "name": "nail", "count": 5, "shade": "green", "prices": [0.5, 2.0] },
        "which": { "discriminator": 1, "text": "yes" },
        "last": { "type": "long", "value": 4 },
    });
    assert_eq!(more, (0, expected));
    let which = r#"{"discriminator": -9, "flag": true}"#;
    assert_eq!(json(call(&["more", it, "0", which])).1["which"], json!({ "discriminator": -9, "flag": true }));

    let raised = json(call(&["more", it, "-1", which]));
    assert_eq!(raised, (1, json!({ "raised": "IDL:test/Shop/Missing:1.0", "members": { "what": "things" } })));
    assert_eq!(json(call(&["_get_level"])), (0, json!({ "result": 7 })));
    assert_eq!(json(call(&["note", "a word"])), (0, json!({})));
    let told = |options: &[&str]| {
        let idl = idl.to_string_lossy().into_owned();
        let output = corelane(&[&["call", "--idl", &idl], options, &[&reference, "told", "1"]].concat());
        (output.status.code().unwrap(), said(&output))
    };
    let properties = ["--context", "site.name=north=1", "--context", "user=ann"];
    assert_eq!(json(told(&properties)).1["result"], r#"{"site.name": "north=1", "user": "ann"}"#);
    assert_eq!(json(told(&[])).1["result"], "{}");
    let other = told(&["--context", "other=1"]);
    assert_eq!(other, (1, "error: the `context` clause of `told` has no property `other`".to_owned()));
    for wrong in ["user", "9=1"] {
        assert_eq!(told(&["--context", wrong]).0, 2);
    }
    let same = format!(r#"{{"type": "Shop::Item", "value": {it}}}"#);
    let same = json(call(&["same", &same]));
    assert_eq!(
        (&same.1["result"]["type"], &same.1["result"]["value"]["name"]),
        (&json!("struct Item"), &json!("nail"))
    );
    let money = json(call(&["same", r#"{"type": "Money", "value": "-12.50"}"#]));
    assert_eq!(money.1["result"]["value"], json!("-12.50"));
    assert_eq!(json(call(&["same", "plain text"])).1["result"], json!({ "type": "string", "value": "plain text" }));
    let links = r#"{"type": "Link", "value": {"at": 1, "name": "a", "next": {"at": 2, "name": null, "next": null}}}"#;
    let value = json!({ "at": 1, "name": "a", "next": { "at": 2, "name": null, "next": null } });
    let answer = json(call(&["same", links])).1["result"].clone();
    assert_eq!((&answer["type"], &answer["value"]), (&json!("valuetype Link"), &value));

    let heavy = json!({ "type": "valuetype Heavy", "value": { "at": 1, "weight": 0.5 } });
    let marked = json(call(&["marked", &heavy.to_string()])).1;
    assert_eq!((&marked["result"], &marked["again"]), (&heavy, &heavy));
    let plain = json(call(&["marked", r#"{"at": 2}"#])).1;
    assert_eq!((&plain["result"], &plain["again"]["type"]), (&json!({ "at": 2 }), &json!("valuetype Mark")));
    assert_eq!(json(call(&["marked", "null"])).1["result"], Json::Null);
    let scoped = json!({ "type": "Shop::Heavy", "value": heavy["value"] });
    assert_eq!(json(call(&["given", &scoped.to_string()])).1["result"], heavy);
    let other = json!({ "type": "valuetype Heavy", "value": { "type": "north", "tons": 3 } });
    assert_eq!(json(call(&["stored", &other.to_string()])).1["result"], other);
    // The content of a box may look like a value with a type name.
    let held = json!({ "type": "long", "value": 1 });
    let boxed = json!({ "type": "AnyBox", "value": { "type": "string", "value": "x" } });
    let kept = json(call(&["kept", &held.to_string(), &boxed.to_string()])).1;
    assert_eq!((&kept["result"], &kept["v"]["value"]), (&held, &boxed["value"]));
    let again = json(call(&["kept", &kept["result"].to_string(), &kept["v"].to_string()])).1;
    assert_eq!(again, kept);
    let pair = json!({ "type": "PairBox", "value": { "type": "a pair", "value": held } });
    assert_eq!(json(call(&["same", &pair.to_string()])).1["result"]["value"], pair["value"]);
    assert_eq!(json(call(&["given", &reference])).1["result"], json!(reference));
    assert_eq!(json(call(&["given", "null"])).1["result"], Json::Null);

    for (words, reason) in [
        (&["marked", r#"{"type": "Label", "value": "x"}"#][..], "Label is no valuetype Mark"),
        (&["given", r#"{"at": 1, "weight": 0.5}"#], "needs the type of the value"),
        (&["given", &heavy.to_string()], "`valuetype Heavy` can be ::Yard::Heavy or ::Shop::Heavy"),
        (&["same", r#"{"type": "Mark", "value": {"at": 1}}"#], "`Mark` can be ::Yard::Mark or ::Shop::Mark"),
        (&["given", r#"{"type": "Described", "value": null}"#], "Described is no abstract interface Described"),
        (&["more", it, "4"][..], "takes 3 arguments"),
        (&["more", it, "4.5", which], "argument `by`: 4.5 is no long"),
        (&["more", "{}", "4", which], "argument `it`: "),
        (
            &["more", &it.replace("2]", "true]"), "4", which],
            "argument `it`: member `prices`: element 1: true is no double",
        ),
        (&["more", it, "4", r#"{"discriminator": 1, "flag": true}"#], "argument `which`: "),
        (&["nothing"], "has no operation `nothing`"),
        (
            &["same", r#"{"type": "Link", "value": {"name": "a", "next": null}}"#],
            "the member `at` of valuetype Link is missing",
        ),
        (&["same", r#"{"type": "Shop::Nothing", "value": 1}"#], "no type `Shop::Nothing`"),
        (&["_set_level", "1"], "has no operation `_set_level`"),
    ] {
        let (status, text) = call(words);
        assert!(status == 1 && text.starts_with("error: ") && text.contains(reason), "{words:?}: {text}");
    }
}

struct Four;

impl DynamicServant for Four {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Four:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        let members = [("x", TypeCode::LONG), ("y", TypeCode::STRING)];
        let larger = TypeCode::structure("IDL:Larger:1.0", "Larger", members).unwrap();
        let map = TypeCode::map(TypeCode::LONG, TypeCode::STRING, 0).unwrap();
        let arguments = request.arguments(&[larger, map, TypeCode::ULONG, TypeCode::OCTET])?;
        request.reply(&arguments)
    }
}

#[test]
fn arguments_and_results_have_types_of_idl_4() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    poa.manager().activate().unwrap();
    let reference = poa.activate(&Servant::dynamic(Four)).unwrap().to_string();
    let idl = file("four").to_string_lossy().replace("shop.idl", "four.idl");
    let text = "struct Small { long x; };\nstruct Larger : Small { string y; };\nbitmask Flags { low, high };\n\
                bitset Word { bitfield<3> a; bitfield<5> b; };\ntypedef map<long, string> Map;\n\
                interface Four {\n\
                Larger all(in Larger l, inout Map m, inout Flags f, inout Word w); };\n";
    fs::write(&idl, text).unwrap();
    let words = [r#"{"x": 1, "y": "one"}"#, r#"[{"key": 7, "value": "seven"}]"#, "2", "255"];
    let output = corelane(&[&["call", "--idl-4", "--idl", &idl, &reference, "all"][..], &words].concat());
    let expected = json!({
        "result": { "x": 1, "y": "one" }, "m": [{ "key": 7, "value": "seven" }], "f": 2, "w": 255,
    });
    let text = said(&output);
    assert_eq!(serde_json::from_str::<Json>(&text).unwrap_or_else(|error| panic!("{error}: {text}")), expected);
}

struct Store;

fn record() -> TypeCode {
    let octets = TypeCode::sequence(TypeCode::OCTET, 0).unwrap();
    let mark = TypeCode::array(TypeCode::OCTET, 2).unwrap();
    TypeCode::structure("IDL:Record:1.0", "Record", [("octets", octets), ("mark", mark)]).unwrap()
}

impl DynamicServant for Store {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Store:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        let octets = TypeCode::sequence(TypeCode::OCTET, 0).unwrap();
        let ty = match request.operation() {
            "octets" => octets,
            "text" => TypeCode::STRING,
            "entry" => record(),
            _ => return Err(SystemException::bad_operation()),
        };
        let arguments = request.arguments(&[ty])?;
        request.reply(&arguments)
    }
}

#[test]
fn arguments_are_read_from_files_standard_input_and_hexadecimal_digits() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    poa.manager().activate().unwrap();
    let reference = poa.activate(&Servant::dynamic(Store)).unwrap().to_string();
    let path = |name: &str| file("store").with_file_name(name).to_string_lossy().into_owned();
    let idl = path("store.idl");
    let text = "typedef sequence<octet> Bulk;\nstruct Record { Bulk octets; octet mark[2]; };\n\
                interface Store { Bulk octets(in Bulk it); string text(in string it); ::Record entry(in ::Record it); };\n";
    fs::write(&idl, text).unwrap();
    let call = |words: &[&str], input: &[u8]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["call", "--idl", &idl, &reference]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let _ = child.stdin.take().expect("it is piped").write_all(input);
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), said(&output))
    };
    let result = |words: &[&str], input: &[u8]| {
        let (status, text) = call(words, input);
        assert_eq!(status, 0, "{words:?}: {text}");
        serde_json::from_str::<Json>(&text).unwrap()["result"].clone()
    };

    for same in ["00fF10", "\"00 ff 10\"", "[0, 255, 16]"] {
        assert_eq!(result(&["octets", same], b""), json!("00ff10"), "{same}");
    }
    // Digits are parsed as hexadecimal, although they are a number in JSON.
    assert_eq!(result(&["octets", "1234"], b""), json!("1234"));
    assert_eq!(result(&["octets", ""], b""), json!(""));
    let nested = json!({ "octets": "cafe", "mark": "0102" });
    assert_eq!(result(&["entry", &nested.to_string()], b""), nested);
    for wrong in ["123", "0g", "+1"] {
        let (status, text) = call(&["octets", wrong], b"");
        assert!(status == 1 && text.contains("octets are pairs of hexadecimal digits"), "{wrong}: {text}");
    }

    // For other types than octets the content of a file is JSON, or text without its last line end.
    let octets = path("octets");
    fs::write(&octets, b"\xff\x00[]\n").unwrap();
    let octets = format!("@{octets}");
    assert_eq!(result(&["octets", &octets], b""), json!("ff005b5d0a"));
    assert_eq!(result(&["octets", "-"], b"\x80\n"), json!("800a"));
    let stored = path("record.json");
    fs::write(&stored, format!("{nested:#}\n")).unwrap();
    assert_eq!(result(&["entry", &format!("@{stored}")], b""), nested);
    assert_eq!(result(&["entry", "-"], nested.to_string().as_bytes()), nested);
    assert_eq!(result(&["text", "-"], b"two\nlines\r\n"), json!("two\nlines"));
    assert_eq!(result(&["text", "-"], b"\"quoted\"\n"), json!("quoted"));
    assert_eq!(result(&["text", "\"@home\""], b""), json!("@home"));
    assert_eq!(result(&["text", "\"-\""], b""), json!("-"));

    for (words, input, reason) in [
        (&["text", "@/no/such/file"][..], &b""[..], "`/no/such/file` cannot be read: No such file"),
        (&["text", "@/"], b"", "`/` cannot be read: Is a directory"),
        (&["text", "@/dev/zero"], b"", "`/dev/zero` holds more than 67108864 octets"),
        (&["text", "-"], b"\xff\n", "`-` holds no UTF-8 text"),
        (&["entry", &octets], b"", "holds no UTF-8 text"),
    ] {
        let (status, text) = call(words, input);
        assert!(status == 1 && text.contains(reason), "{words:?}: {text}");
    }

    let long = format!("{{\"octets\": \"{}\", \"mark\": \"01\", \"more\": 1}}", "00".repeat(50_000));
    for words in [&["entry", &long][..], &["entry", &long[1..]], &["octets", &long]] {
        let (status, text) = call(words, b"");
        assert!(status == 1 && text.len() < 300, "{} characters: {:.300}", text.len(), text);
    }
    assert!(call(&["entry", &long[1..]], b"").1.contains("... (1000"));
}

#[test]
fn standard_input_is_refused_as_a_second_argument() {
    let idl = file("twice").to_string_lossy().into_owned();
    let call = ["call", "--interface", "Counter", "--idl", &idl, "corbaloc::127.0.0.1:1/x", "more", "-", "-", "0"];
    let output = corelane(&call);
    assert_eq!((output.status.code(), said(&output).contains("argument `it`")), (Some(1), true), "{}", said(&output));
    let kept = ["call", "--interface", "Counter", "--idl", &idl, "corbaloc::127.0.0.1:1/x", "kept", "-", "-"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let mut child = command.args(kept).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"null").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert!(output.status.code() == Some(1) && text.contains("a second one cannot be read from it"), "{text}");
}

#[test]
fn list_prints_operations_of_the_chosen_interfaces() {
    let idl = file("list").to_string_lossy().into_owned();
    let list = |words: &[&str]| {
        let output = corelane(&[&["call", "--list", "--idl", &idl], words].concat());
        (output.status.code().unwrap(), said(&output))
    };
    let counter = "Shop::Counter (IDL:test/Shop/Counter:1.0)\n\
        \x20 Shop::Item more(in Shop::Item it, in long by, inout Shop::Choice which, out any last) raises (Shop::Missing);\n\
        \x20 any same(in any value);\n\
        \x20 oneway void note(in string text);\n\
        \x20 string told(in long by) context (\"user\", \"site.*\");\n\
        \x20 Shop::Mark marked(in Shop::Mark m, out ValueBase again);\n\
        \x20 Shop::Described given(in Shop::Described d);\n\
        \x20 Shop::AnyBox kept(in Shop::AnyBox b, inout ValueBase v);\n\
        \x20 Yard::Mark stored(in Yard::Mark m);\n\
        \x20 // inherited from Shop::Base\n\
        \x20 long _get_level();";
    assert_eq!(list(&["--interface", "Counter"]), (0, counter.to_owned()));
    // A reference without a type selects all interfaces.
    let ior = |type_id: &str| {
        let address = corelane_wire::ior::ProfileAddress::Inet { host: "127.0.0.1", port: 1 };
        let version = corelane_wire::Version { major: 1, minor: 2 };
        let profile = corelane_wire::ior::TaggedProfile::encode(version, address, b"x", &[]).unwrap();
        corelane_wire::Ior { type_id: type_id.into(), profiles: vec![profile] }.to_text().unwrap()
    };
    assert_eq!(list(&[&ior("IDL:test/Shop/Counter:1.0")]), (0, counter.to_owned()));
    let (status, all) = list(&["corbaloc::127.0.0.1:1/x"]);
    assert_eq!((status, list(&[])), (0, (0, all.clone())));
    for part in [
        counter,
        "Shop::Other (IDL:test/Shop/Other:1.0)\n  void note(in string text);",
        "Shop::Described (",
        "  string describe();",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let (status, text) = list(&[&ior("IDL:Elsewhere:1.0")]);
    assert!(status == 1 && text.contains("declares no `IDL:Elsewhere:1.0`, but Shop::"), "{text}");
    assert_eq!(list(&["--interface", "Nothing"]), (1, "error: there is no interface `Nothing`".to_owned()));
    assert_eq!(list(&["corbaloc::127.0.0.1:1/x", "note"]).0, 2);
    let missing = corelane(&["call", "--idl", &idl, "corbaloc::127.0.0.1:1/x"]);
    assert!(missing.status.code() == Some(2) && said(&missing).contains("--list shows the operations"));
}

#[test]
fn failed_calls_report_the_reason() {
    let idl = file("wrong").to_string_lossy().into_owned();
    assert_eq!(corelane(&["call", "--idl", &idl, "IOR:00"]).status.code(), Some(2));
    assert_eq!(corelane(&["call", "corbaloc::127.0.0.1:1/x", "f"]).status.code(), Some(2));
    let twice = corelane(&["call", "--idl", &idl, "corbaloc::127.0.0.1:1/x", "note", "x"]);
    assert_eq!((twice.status.code(), said(&twice).contains("Shop::Counter::note, Shop::Other::note")), (Some(1), true));
    let nobody =
        corelane(&["call", "--interface", "Shop::Other", "--idl", &idl, "corbaloc::127.0.0.1:1/x", "note", "x"]);
    assert_eq!((nobody.status.code(), said(&nobody).contains("TRANSIENT")), (Some(1), true), "{}", said(&nobody));
}

#[test]
fn dump_prints_declarations_as_json() {
    let idl = file("dump").to_string_lossy().into_owned();
    let output = corelane(&["idl", "dump", &idl]);
    assert_eq!(output.status.code(), Some(0));
    let dump: Json = serde_json::from_str(&said(&output)).unwrap();
    let module = &dump["definitions"][1];
    let find = |name: &str| {
        let all = module["definitions"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).cloned().unwrap()
    };
    assert_eq!((&module["kind"], &module["name"]), (&json!("module"), &json!("Shop")));
    assert_eq!(find("MOST")["value"], json!(12));
    assert_eq!(find("Item")["members"][2], json!({ "name": "shade", "type": "Shop::Colour" }));
    assert_eq!(find("Choice")["members"][2]["default"], json!(true));
    let counter = find("Counter");
    assert_eq!((&counter["bases"], &counter["id"]), (&json!(["Shop::Base"]), &json!("IDL:test/Shop/Counter:1.0")));
    assert_eq!(counter["definitions"][0]["parameters"][2]["direction"], json!("inout"));
    let idl_4 = idl.replace("shop.idl", "idl_4.idl");
    let text = "@annotation unit { string of; };\nstruct Nothing {};\n@nested struct S { @key @id(2 + 1) N x; };\n\
                interface I { @wcet(500) void f(@unit(of = \"m\") in long a); };\n";
    fs::write(&idl_4, text).unwrap();
    assert_eq!(corelane(&["idl", "dump", "-DN=long", &idl_4]).status.code(), Some(1));
    let output = corelane(&["idl", "dump", "-DN=long", "--idl-4", &idl_4]);
    let dump: Json = serde_json::from_str(&said(&output)).unwrap();
    let all = &dump["definitions"];
    let of = |name: &str| all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap();
    assert_eq!(of("S")["annotations"], json!([{ "name": "nested", "arguments": [] }]));
    let member = json!([
        { "name": "key", "arguments": [] },
        { "name": "id", "arguments": [{ "name": null, "value": "2 + 1" }] },
    ]);
    assert_eq!(of("S")["members"][0]["annotations"], member);
    let operation = &of("I")["definitions"][0];
    assert_eq!(operation["annotations"][0]["name"], json!("wcet"));
    let unit = json!([{ "name": "unit", "arguments": [{ "name": "of", "value": "\"m\"" }] }]);
    assert_eq!(operation["parameters"][0]["annotations"], unit);
    let call = ["call", "-DN=long", "--idl-4", "--idl", &idl_4, "corbaloc::127.0.0.1:1/x", "f", "1"];
    assert!(said(&corelane(&call)).contains("TRANSIENT"));
    assert_eq!(corelane(&["idl", "dump", "/no/such.idl"]).status.code(), Some(1));
    assert_eq!(corelane(&["idl", "dump"]).status.code(), Some(2));
}
