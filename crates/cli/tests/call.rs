//! `corelane call` and `corelane idl dump` as their users meet them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::{Any, Orb, Servant, SystemException, TypeCode, Value};
use serde_json::{Value as Json, json};

const IDL: &str = r#"
    #pragma prefix "test"
    module Shop {
      enum Colour { red, green };
      struct Item { string name; long count; Colour shade; sequence<double> prices; };
      union Choice switch (long) { case 1: string text; case 2: Item thing; default: boolean flag; };
      valuetype Mark { public long at; };
      valuetype Label string;
      valuetype Link : truncatable Mark { public Label name; private Link next; };
      exception Missing { string what; };
      typedef fixed<7, 2> Money;
      const long MOST = 3 * 4;
      interface Base { readonly attribute long level; };
      interface Counter : Base {
        Item more(in Item it, in long by, inout Choice which, out any last) raises (Missing);
        any same(in any value);
        oneway void note(in string text);
        string told(in long by) context ("user", "site.*");
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

/// Counts things.
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
fn any_operation_is_called_from_its_idl() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
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
    // In front of the reference stand the options, properties among them.
    let told = |options: &[&str]| {
        let idl = idl.to_string_lossy().into_owned();
        let output = corelane(&[&["call", "--idl", &idl], options, &[&reference, "told", "1"]].concat());
        (output.status.code().unwrap(), said(&output))
    };
    let properties = ["--context", "site.name=north=1", "--context", "user=ann"];
    assert_eq!(json(told(&properties)).1["result"], r#"{"site.name": "north=1", "user": "ann"}"#);
    assert_eq!(json(told(&[])).1["result"], "{}");
    let other = told(&["--context", "other=1"]);
    assert_eq!(other, (1, "error: `told` asks for no property `other`".to_owned()));
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
    // Values, with what they inherit, in boxes, and null.
    let links = r#"{"type": "Link", "value": {"at": 1, "name": "a", "next": {"at": 2, "name": null, "next": null}}}"#;
    let value = json!({ "at": 1, "name": "a", "next": { "at": 2, "name": null, "next": null } });
    let answer = json(call(&["same", links])).1["result"].clone();
    assert_eq!((&answer["type"], &answer["value"]), (&json!("valuetype Link"), &value));

    for (words, reason) in [
        (&["more", it, "4"][..], "takes 3 arguments"),
        (&["more", it, "4.5", which], "argument `by`: 4.5 is no long"),
        (&["more", "{}", "4", which], "argument `it`: "),
        (&["more", it, "4", r#"{"discriminator": 1, "flag": true}"#], "argument `which`: "),
        (&["nothing"], "has no operation `nothing`"),
        (&["same", r#"{"type": "Link", "value": {"name": "a", "next": null}}"#], "has a member `at`"),
        (&["same", r#"{"type": "Shop::Nothing", "value": 1}"#], "no type `Shop::Nothing`"),
        (&["_set_level", "1"], "has no operation `_set_level`"),
    ] {
        let (status, text) = call(words);
        assert!(status == 1 && text.starts_with("error: ") && text.contains(reason), "{words:?}: {text}");
    }
}

#[test]
fn wrong_calls() {
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
fn declarations_are_dumped() {
    let idl = file("dump").to_string_lossy().into_owned();
    let output = corelane(&["idl", "dump", &idl]);
    assert_eq!(output.status.code(), Some(0));
    let dump: Json = serde_json::from_str(&said(&output)).unwrap();
    let module = &dump["definitions"][0];
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
