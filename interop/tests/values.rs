//! Values, fixed-point numbers and abstract interfaces with omniORB and JacORB, in both directions.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane::mapping::{Decoder, Encoder};
use corelane::{
    Any, AnyValueRef, CdrError, Decimal, Fixed, ObjectOrValue, Octets, Orb, ShutdownHandle, SystemException, TypeCode,
    Typed, ValueGraph, ValueImplementation, ValueRef, mapping,
};
use corelane_interop::client_server_run::TrafficCheck;
use corelane_interop::peers::Orb::{self as Peer, JacOrb, OmniOrb};
use corelane_interop::peers::Peers;
use corelane_interop::process::{self, Server};
use corelane_interop::report::{FailedCheck, Report};
use corelane_interop::skips::Skips;
use corelane_interop::suite::options::Characters;
use corelane_interop::suite::values::{Random, SampleOptions};

corelane::include_idl!("values");

use interop_values::*;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn peers() -> &'static Peers {
    Peers::build(&folder("peers")).unwrap_or_else(|trouble| panic!("{trouble}"))
}

struct MyNote(String);

impl Described for MyNote {
    fn describe(&self) -> Result<String, SystemException> {
        Ok(self.0.clone())
    }
}

impl NoteOperations for MyNote {
    fn state(&self) -> Note {
        Note { text: self.0.clone() }
    }
}

struct MySquare(f64);

impl Shape for MySquare {
    fn area(&self) -> Result<f64, SystemException> {
        Ok(self.0 * self.0)
    }
}

impl SquareOperations for MySquare {
    fn state(&self) -> Square {
        Square { side: self.0 }
    }
}

struct MyStamp(Stamp);

impl StampOperations for MyStamp {
    fn state(&self) -> Stamp {
        self.0.clone()
    }

    fn marshal(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_i32(self.0.number);
        e.write_str(&self.0.text)?;
        e.write_i16(self.0.data.len() as i16);
        e.write_bytes(&self.0.data);
        mapping::write_value(e, self.0.origin.as_ref())
    }
}

fn stamp(d: &mut Decoder<'_>) -> Result<ValueImplementation<Stamp>, CdrError> {
    let (number, text) = (d.read_i32()?, d.read_string()?);
    let count = d.read_i16()?;
    let data = Octets::from(d.read_bytes(count as usize)?.to_vec());
    let origin = mapping::read_value(d)?;
    Ok(StampOperations::implementation(MyStamp(Stamp { number, text, data, origin })))
}

fn register(orb: &Orb) {
    orb.value_factories().register::<Node>();
    orb.value_factories().register::<Extended>();
    orb.value_factories().register::<Heavier>();
    orb.value_factories().register_custom(stamp);
    orb.value_factories().register_with(|square: Square| SquareOperations::implementation(MySquare(square.side)));
    orb.value_factories().register_with(|note: Note| NoteOperations::implementation(MyNote(note.text)));
}

fn graph(random: &mut Random) -> NodeRef {
    let graph = ValueGraph::new();
    let nodes: Vec<NodeRef> = (0..1 + random.below(12)).map(|_| graph.declare()).collect();
    let mut next = || {
        let some = random.below(4) > 0;
        some.then(|| nodes[random.below(nodes.len() as u64) as usize].clone())
    };
    for (at, node) in nodes.iter().enumerate() {
        let state = Node { id: at as i32 * 1_000_003, left: next(), right: next(), label: format!("node {at}") };
        assert!(graph.define(node, state));
    }
    graph.close(nodes[0].clone())
}

fn form(start: Option<&NodeRef>) -> Vec<(i32, String, Option<usize>, Option<usize>)> {
    let mut met: Vec<NodeRef> = start.cloned().into_iter().collect();
    let mut form = Vec::new();
    while form.len() < met.len() {
        let state = met[form.len()].get();
        let mut number = |next: &Option<NodeRef>| {
            let next = next.as_ref()?;
            Some(met.iter().position(|known| known == next).unwrap_or_else(|| {
                met.push(next.clone());
                met.len() - 1
            }))
        };
        let (left, right) = (number(&state.left), number(&state.right));
        form.push((state.id, state.label.clone(), left, right));
    }
    form
}

fn walk(start: Option<&NodeRef>, met: &mut Vec<NodeRef>) -> String {
    let Some(node) = start.filter(|node| !met.contains(node)) else { return String::new() };
    met.push(node.clone());
    let state = node.get();
    format!("{} ", state.id) + &walk(state.left.as_ref(), met) + &walk(state.right.as_ref(), met)
}

fn base(random: &mut Random) -> Base {
    Base { tag: random.below(256) as u8, number: random.below(1 << 31) as i32, name: "nä€".to_owned() }
}

fn extended(random: &mut Random) -> Extended {
    let graph = (random.below(5) > 0).then(|| graph(random));
    Extended { base: base(random), extra: random.below(1000) as f64 / 8.0, graph, last: random.below(30_000) as i16 }
}

fn assert_extended(found: &BaseRef, expected: &Extended) {
    let found = found.narrow::<Extended>().expect("an Extended").get();
    assert_eq!((&found.base, found.extra, found.last), (&expected.base, expected.extra, expected.last));
    assert_eq!(form(found.graph.as_ref()), form(expected.graph.as_ref()));
}

const ROUNDS: u64 = 20;

fn calls(peer: Peer) {
    let folder = folder(&format!("values-at-{}", peer.name()));
    let server = Server::start(peers().values_command(peer), &folder).unwrap();
    let reference = fs::read_to_string(server.reference()).unwrap();
    let orb = Orb::new().unwrap();
    register(&orb);
    let suite: ValueSuiteRef = orb.string_to_reference(reference.trim()).unwrap();
    let mut report = Report::default();
    let skips = Skips::for_pair(peer.name(), "corelane", Skips::VALUES_VARIANT).unwrap();
    let left_out = skips.client_options();
    for (name, check) in CHECKS.iter().filter(|(name, _)| !left_out.contains(name)) {
        let only_labelled_discriminators = left_out.contains(&"--plain-unions");
        let rounds = || (0..ROUNDS).for_each(|round| check(&suite, &mut random(round, only_labelled_discriminators)));
        match panic::catch_unwind(AssertUnwindSafe(rounds)) {
            Ok(()) => report.passed.push((*name).to_owned()),
            Err(_) => report
                .failed
                .push(FailedCheck { check: (*name).to_owned(), line: format!("FAIL {name}, see the panic above") }),
        }
    }
    assert_eq!(skips.differences(&report, TrafficCheck::Unchecked), [""; 0]);
    suite.shutdown().unwrap();
    server.wait_for_exit().unwrap();
}

fn random(round: u64, only_labelled_discriminators: bool) -> Random {
    Random::new(round, SampleOptions { characters: Characters::Ascii, only_labelled_discriminators })
}

type Check = fn(&ValueSuiteRef, &mut Random);

const CHECKS: &[(&str, Check)] = &[
    ("echo_money(short)", |suite, random| money(suite, random, 1, 5)),
    ("echo_money", |suite, random| money(suite, random, 100_000_000, 999_999_999)),
    ("echo_widest", widest),
    ("echo_node", nodes),
    ("walk", walks),
    ("echo_nodes", sequences),
    ("echo_base", bases),
    ("echo_base(truncated)", truncated),
    ("echo_title", titles),
    ("echo_words", words),
    ("echo_described", described),
    ("echo_folder", folders),
    ("echo_choice", choices),
    ("echo_on_key", keys),
    ("echo_on_card", cards),
    ("echo_pair", pairs),
    ("echo_shape", shapes),
    ("echo_value", values),
    ("echo_stamp", stamps),
    ("echo_any(Folder)", anys_of_folders),
    ("echo_any", anys),
    ("echo_any(Extended)", anys_of_heirs),
    ("echo_any(Stamp)", anys_of_stamps),
    ("echo_any(Money)", |suite, random| {
        let money = Money::from_unscaled(-100_000_000 - i128::from(random.below(800_000_000))).unwrap();
        in_any(suite, &money, Some(&MONEY_TYPE), |found| assert_eq!(found, money));
    }),
    ("echo_any(Widest)", |suite, random| {
        let widest = Widest::from_unscaled(10i128.pow(30) + i128::from(random.below(u64::MAX))).unwrap();
        in_any(suite, &widest, Some(&WIDEST_TYPE), |found| assert_eq!(found, widest));
    }),
    ("echo_any(Title)", |suite, _| {
        let title = Some(ValueRef::new(Title("a title".to_owned())));
        in_any(suite, &title, None, |found: Option<TitleRef>| assert_eq!(found.unwrap().get().0, "a title"));
    }),
    ("echo_any(Words)", |suite, _| {
        let words = vec!["one".to_owned(), String::new()];
        let boxed = Some(ValueRef::new(Words(words.clone())));
        in_any(suite, &boxed, None, |found: Option<WordsRef>| assert_eq!(found.unwrap().get().0, words));
    }),
    ("echo_any(Described)", |suite, _| {
        let object: DescribedRef = ObjectOrValue::Object(suite.server_thing().unwrap().unwrap().into());
        in_any(suite, &Some(object), None, |found: Option<DescribedRef>| {
            let Some(ObjectOrValue::Object(object)) = found else { panic!("not an object") };
            assert_eq!(object.describe().unwrap(), "thing");
        });
    }),
    ("echo_any(Note)", |suite, _| {
        let note: DescribedRef =
            ObjectOrValue::Value(NoteOperations::implementation(MyNote("a note".to_owned())).value().widen());
        in_any(suite, &Some(note), None, assert_note);
    }),
    ("echo_any(Described=Note)", |suite, _| {
        let note: DescribedRef =
            ObjectOrValue::Value(NoteOperations::implementation(MyNote("a note".to_owned())).value().widen());
        in_any(suite, &Some(note), Some(&DESCRIBED_TYPE), assert_note);
    }),
    ("echo_any(Thing)", |suite, _| {
        let thing = suite.server_thing().unwrap();
        in_any(suite, &thing, None, |found: Option<ThingRef>| assert_eq!(found.unwrap().describe().unwrap(), "thing"));
    }),
    ("echo_any(Shape)", |suite, _| {
        let square: ShapeRef = SquareOperations::implementation(MySquare(1.5)).value().widen();
        in_any(suite, &Some(square), None, |found: Option<ShapeRef>| {
            assert_eq!(found.unwrap().narrow::<Square>().unwrap().get().side, 1.5);
        });
    }),
    ("echo_any(Choice)", |suite, random| {
        let choice = choice(random, false);
        in_any(suite, &choice, None, |found| assert_choice(&found, &choice));
    }),
    ("echo_any(Choice=Title)", |suite, random| {
        let choice = choice(random, true);
        in_any(suite, &choice, None, |found| assert_choice(&found, &choice));
    }),
    ("echo_any(OnKey)", |suite, random| {
        let on = on_key(random);
        in_any(suite, &on, None, |found| assert_key(&found, &on));
    }),
    ("echo_any(OnCard)", |suite, random| {
        let on = on_card(random);
        in_any(suite, &on, None, |found| assert_eq!(found, on));
    }),
    ("echo_any(Pair)", |suite, random| {
        let node = graph(random);
        in_any(suite, &[Some(node.clone()), None], Some(&PAIR_TYPE), |found: Pair| {
            assert_eq!((form(found[0].as_ref()), &found[1]), (form(Some(&node)), &None));
        });
    }),
    ("repack", repacked),
];

fn in_any<T: Typed>(
    suite: &ValueSuiteRef,
    value: &T,
    type_code: Option<&'static mapping::StaticTypeCode>,
    look: impl Fn(T),
) {
    let type_code = type_code.map_or_else(|| value.dynamic_type_code(), TypeCode::from_description);
    let any = Any::with_type(&type_code, value).unwrap();
    let nested = Any::new(&Any::new(&any).unwrap()).unwrap();
    let (result, inout, out) = suite.echo_any(&any, &nested).unwrap();
    let innermost: Any = out.extract::<Any>().unwrap().extract().unwrap();
    for found in [result, inout, innermost] {
        assert_eq!(found.type_code().unaliased().id(), type_code.unaliased().id());
        look(found.extract().unwrap());
    }
}

fn money(suite: &ValueSuiteRef, random: &mut Random, least: u64, most: u64) {
    let [a, b] = [(); 2].map(|()| {
        let digits = i128::from(least + random.below(most - least));
        Money::from_unscaled(if random.below(2) == 0 { digits } else { -digits }).unwrap()
    });
    assert_eq!(suite.echo_money(a, b).unwrap(), (a, a, b));
}

fn widest(suite: &ValueSuiteRef, random: &mut Random) {
    let [a, b] = [(); 2].map(|()| {
        let digits = 10i128.pow(30) + (i128::from(random.below(u64::MAX)) << 34);
        Widest::from_unscaled(if random.below(2) == 0 { digits } else { -digits }).unwrap()
    });
    assert_eq!(suite.echo_widest(a, b).unwrap(), (a, a, b));
    let most = Fixed::<31, 10>::truncate("999999999999999999999.9999999999".parse::<Decimal>().unwrap()).unwrap();
    assert_eq!(suite.echo_widest(most, a).unwrap(), (most, most, a));
}

fn nodes(suite: &ValueSuiteRef, random: &mut Random) {
    let (a, b) = (graph(random), (random.below(5) > 0).then(|| graph(random)));
    let (result, inout, out) = suite.echo_node(Some(&a), b.as_ref()).unwrap();
    assert_eq!((form(result.as_ref()), form(out.as_ref())), (form(Some(&a)), form(b.as_ref())));
    assert_eq!(result, inout, "one value in two parameters");
}

fn walks(suite: &ValueSuiteRef, random: &mut Random) {
    let a = graph(random);
    assert_eq!(suite.walk(Some(&a)).unwrap(), walk(Some(&a), &mut Vec::new()));
}

fn sequences(suite: &ValueSuiteRef, random: &mut Random) {
    let (a, b) = (graph(random), (random.below(5) > 0).then(|| graph(random)));
    let list = [Some(a.clone()), b.clone(), None, Some(a.clone()), a.get().left.clone()];
    let (result, _, out) = suite.echo_nodes(&list, &[]).unwrap();
    assert!(result.len() == 5 && result[2].is_none() && out.is_empty());
    assert_eq!(result[0], result[3]);
    assert_eq!(result[0].as_ref().unwrap().get().left, result[4]);
    assert_eq!(form(result[1].as_ref()), form(b.as_ref()));
}

fn bases(suite: &ValueSuiteRef, random: &mut Random) {
    let (plain, more) = (base(random), extended(random));
    let (result, _, out) =
        suite.echo_base(Some(&ValueRef::new(plain.clone())), Some(&ValueRef::new(more.clone()).widen())).unwrap();
    assert_eq!(*result.unwrap().get(), plain);
    assert_extended(&out.unwrap(), &more);
    let heavier = Heavier { base: plain.clone(), weight: random.below(1 << 31) as i32 };
    let (result, ..) = suite.echo_base(Some(&ValueRef::new(heavier.clone()).widen()), None).unwrap();
    assert_eq!(*result.unwrap().narrow::<Heavier>().unwrap().get(), heavier);
    assert_eq!(suite.echo_base(None, None).unwrap(), (None, None, None));
}

fn truncated(suite: &ValueSuiteRef, random: &mut Random) {
    let (plain, more) = (base(random), extended(random));
    let further = Further {
        base: more.clone(),
        more: Some(graph(random)),
        list: vec![Some(graph(random)), None, more.graph.clone()],
        tail: "tail".to_owned(),
    };
    let (result, inout, out) =
        suite.echo_base(Some(&ValueRef::new(further).widen()), Some(&ValueRef::new(plain.clone()))).unwrap();
    assert_extended(&result.unwrap(), &more);
    assert_extended(&inout.unwrap(), &more);
    assert_eq!(*out.unwrap().get(), plain);
}

fn titles(suite: &ValueSuiteRef, _: &mut Random) {
    let title = ValueRef::new(Title("a title".to_owned()));
    let (result, _, out) = suite.echo_title(Some(&title), None).unwrap();
    assert_eq!((result.unwrap().get().0.as_str(), out), ("a title", None));
}

fn words(suite: &ValueSuiteRef, _: &mut Random) {
    let words = ValueRef::new(Words(vec!["one".to_owned(), String::new()]));
    let (result, _, out) = suite.echo_words(Some(&words), Some(&ValueRef::new(Words(Vec::new())))).unwrap();
    assert_eq!((result.unwrap().get().0.len(), out.unwrap().get().0.len()), (2, 0));
}

fn described(suite: &ValueSuiteRef, _: &mut Random) {
    let object: DescribedRef = ObjectOrValue::Object(suite.server_thing().unwrap().unwrap().into());
    let value: DescribedRef =
        ObjectOrValue::Value(NoteOperations::implementation(MyNote("a note".to_owned())).value().widen());
    let (result, _, out) = suite.echo_described(Some(&object), Some(&value)).unwrap();
    let Some(ObjectOrValue::Object(object)) = result else { panic!("not an object") };
    assert_eq!(object.describe().unwrap(), "thing");
    assert_note(out);
}

fn assert_note(found: Option<DescribedRef>) {
    let Some(ObjectOrValue::Value(value)) = found else { panic!("not a value") };
    assert_eq!(value.implementation::<dyn Described>().unwrap().describe().unwrap(), "a note");
}

fn folder_of(random: &mut Random, more: &Extended) -> Folder {
    let node = graph(random);
    let chosen = match random.below(3) {
        0 => Choice::Leaf(Some(node.clone())),
        1 => Choice::Heading(Some(ValueRef::new(Title("heading".to_owned())))),
        _ => Choice::Number(1, 42),
    };
    Folder {
        first: Some(node.clone()),
        name: Some(ValueRef::new(Title("name".to_owned()))),
        second: Some(node.clone()),
        item: Some(ValueRef::new(more.clone()).widen()),
        chosen,
        two: [None, Some(node)],
    }
}

fn assert_folder(found: &Folder, expected: &Folder, more: &Extended) {
    assert_eq!((&found.first, &found.first), (&found.second, &found.two[1]), "one value in several places");
    assert_eq!(form(found.second.as_ref()), form(expected.first.as_ref()));
    assert_extended(found.item.as_ref().unwrap(), more);
    assert_choice(&found.chosen, &expected.chosen);
}

fn folders(suite: &ValueSuiteRef, random: &mut Random) {
    let more = extended(random);
    let folder = folder_of(random, &more);
    let (result, inout, out) = suite.echo_folder(&folder, &folder).unwrap();
    for found in [&result, &inout, &out] {
        assert_folder(found, &folder, &more);
    }
}

fn choice(random: &mut Random, boxes: bool) -> Choice {
    match random.below(4) {
        0 => Choice::Leaf(Some(graph(random))),
        1 => Choice::Leaf(None),
        2 if boxes => Choice::Heading(Some(ValueRef::new(Title("heading".to_owned())))),
        _ => Choice::Number(if random.only_labelled_discriminators() { 1 } else { -9 }, 42),
    }
}

fn assert_choice(found: &Choice, expected: &Choice) {
    match (found, expected) {
        (Choice::Leaf(found), Choice::Leaf(expected)) => assert_eq!(form(found.as_ref()), form(expected.as_ref())),
        (Choice::Heading(Some(found)), Choice::Heading(Some(expected))) => assert_eq!(found.get().0, expected.get().0),
        (found, expected) => assert_eq!(found, expected),
    }
}

fn choices(suite: &ValueSuiteRef, random: &mut Random) {
    let (a, b) = (choice(random, true), choice(random, true));
    let (result, inout, out) = suite.echo_choice(&a, &b).unwrap();
    for (found, expected) in [(&result, &a), (&inout, &a), (&out, &b)] {
        assert_choice(found, expected);
    }
}

fn on_key(random: &mut Random) -> OnKey {
    match random.below(3) {
        0 => OnKey::Text("text".to_owned()),
        2 if !random.only_labelled_discriminators() => OnKey::Other(random.below(1 << 31) as i32 + 8),
        _ => OnKey::Leaf(Some(graph(random))),
    }
}

fn assert_key(found: &OnKey, expected: &OnKey) {
    match (found, expected) {
        (OnKey::Leaf(found), OnKey::Leaf(expected)) => assert_eq!(form(found.as_ref()), form(expected.as_ref())),
        (found, expected) => assert_eq!(found, expected),
    }
}

fn keys(suite: &ValueSuiteRef, random: &mut Random) {
    let (a, b) = (on_key(random), on_key(random));
    let (result, inout, out) = suite.echo_on_key(&a, &b).unwrap();
    for (found, expected) in [(&result, &a), (&inout, &a), (&out, &b)] {
        assert_key(found, expected);
    }
}

fn on_card(random: &mut Random) -> OnCard {
    match random.below(3) {
        0 => OnCard::Content(Any::new(&(random.below(99) as i32)).unwrap()),
        2 if !random.only_labelled_discriminators() => OnCard::Other(Suit::Hearts),
        _ => OnCard::Amount(-12.5),
    }
}

fn cards(suite: &ValueSuiteRef, random: &mut Random) {
    let (a, b) = (on_card(random), on_card(random));
    assert_eq!(suite.echo_on_card(&a, &b).unwrap(), (a.clone(), a, b));
}

fn pairs(suite: &ValueSuiteRef, random: &mut Random) {
    let node = graph(random);
    let (result, inout, out) = suite.echo_pair(&[Some(node.clone()), Some(node.clone())], &[None, None]).unwrap();
    assert_eq!((&result[0], &result[0]), (&result[1], &inout[0]), "one value in three places");
    assert_eq!((form(result[0].as_ref()), out), (form(Some(&node)), [None, None]));
}

fn shapes(suite: &ValueSuiteRef, _: &mut Random) {
    let shape: ShapeRef = SquareOperations::implementation(MySquare(1.5)).value().widen();
    let (result, inout, out) = suite.echo_shape(Some(&shape), None).unwrap();
    assert_eq!((&result, out), (&inout, None));
    assert_eq!(result.unwrap().implementation::<dyn Shape>().unwrap().area().unwrap(), 2.25);
}

fn values(suite: &ValueSuiteRef, random: &mut Random) {
    let (node, more) = (graph(random), extended(random));
    let any: AnyValueRef = ValueRef::new(more.clone()).widen();
    let (result, _, out) = suite.echo_value(Some(&node.widen()), Some(&any)).unwrap();
    assert_eq!(form(result.unwrap().narrow().as_ref()), form(Some(&node)));
    assert_extended(&out.unwrap().narrow().unwrap(), &more);
}

fn stamp_state(random: &mut Random) -> Stamp {
    Stamp { number: -5, text: "a stamp".to_owned(), data: random.octets(300), origin: Some(graph(random)) }
}

fn assert_stamp(found: &StampRef, state: &Stamp) {
    let found = found.get();
    assert_eq!((found.number, &found.text, &found.data), (-5, &state.text, &state.data));
    assert_eq!(form(found.origin.as_ref()), form(state.origin.as_ref()));
}

fn stamps(suite: &ValueSuiteRef, random: &mut Random) {
    let state = stamp_state(random);
    let stamp = StampOperations::implementation(MyStamp(state.clone())).value();
    let (result, inout, out) = suite.echo_stamp(Some(&stamp), None).unwrap();
    assert_eq!((&result, out), (&inout, None));
    assert_stamp(&result.unwrap(), &state);
}

fn anys_of_folders(suite: &ValueSuiteRef, random: &mut Random) {
    let more = extended(random);
    let folder = folder_of(random, &more);
    let any = Any::new(&folder).unwrap();
    let (result, inout, out) = suite.echo_any(&any, &Any::new(&any).unwrap()).unwrap();
    assert_folder(&result.extract().unwrap(), &folder, &more);
    assert_folder(&inout.extract().unwrap(), &folder, &more);
    assert_folder(&out.extract::<Any>().unwrap().extract().unwrap(), &folder, &more);
}

fn anys(suite: &ValueSuiteRef, random: &mut Random) {
    let (node, plain) = (graph(random), base(random));
    let a = Any::new(&Some(node.clone())).unwrap();
    let (result, _, out) = suite.echo_any(&a, &Any::new(&a).unwrap()).unwrap();
    let inner: Any = out.extract().unwrap();
    for found in [result, inner] {
        assert_eq!(form(found.extract::<Option<NodeRef>>().unwrap().as_ref()), form(Some(&node)));
    }

    let list: NodeSeq = vec![Some(node.clone()), None, Some(node.clone())];
    let any = Any::with_type(&TypeCode::from_description(&NODE_SEQ_TYPE), &list).unwrap();
    let (result, ..) = suite.echo_any(&any, &any).unwrap();
    let found: NodeSeq = result.extract().unwrap();
    assert_eq!((found.len(), &found[0], &found[1]), (3, &found[2], &None));
    assert_eq!(form(found[0].as_ref()), form(Some(&node)));

    let plain_any = Any::new(&Some(ValueRef::new(plain.clone()))).unwrap();
    let (result, _, out) = suite.echo_any(&plain_any, &Any::new(&None::<NodeRef>).unwrap()).unwrap();
    assert_eq!(*result.extract::<Option<BaseRef>>().unwrap().unwrap().get(), plain);
    assert_eq!(out.extract::<Option<NodeRef>>().unwrap(), None);
    assert_eq!(out.type_code().id(), TypeCode::from_description(&NODE_TYPE).id());
}

fn anys_of_heirs(suite: &ValueSuiteRef, random: &mut Random) {
    let more = extended(random);
    let item: Option<BaseRef> = Some(ValueRef::new(more.clone()).widen());
    let any = Any::new(&item).unwrap();
    let (result, _, out) = suite.echo_any(&any, &Any::new(&any).unwrap()).unwrap();
    for found in [result, out.extract().unwrap()] {
        assert_extended(&found.extract::<Option<BaseRef>>().unwrap().unwrap(), &more);
    }
}

fn anys_of_stamps(suite: &ValueSuiteRef, random: &mut Random) {
    let state = stamp_state(random);
    let any = Any::new(&Some(StampOperations::implementation(MyStamp(state.clone())).value())).unwrap();
    let (result, inout, out) = suite.echo_any(&any, &Any::new(&any).unwrap()).unwrap();
    for found in [result, inout, out.extract().unwrap()] {
        assert_stamp(&found.extract::<Option<StampRef>>().unwrap().unwrap(), &state);
    }
}

fn repacked(suite: &ValueSuiteRef, random: &mut Random) {
    let node = graph(random);
    let any = suite.repack(&Any::new(&Some(node.clone())).unwrap()).unwrap();
    assert_eq!(form(any.extract::<Option<NodeRef>>().unwrap().as_ref()), form(Some(&node)));
}

struct MyThing;

impl Described for MyThing {
    fn describe(&self) -> Result<String, SystemException> {
        Ok("thing".to_owned())
    }
}

impl Thing for MyThing {}

struct Suite {
    thing: ThingRef,
    stop: ShutdownHandle,
}

type Answer<T> = Result<(T, T, T), SystemException>;

fn back<T: Clone>(a: &T, b: &T) -> Answer<T> {
    Ok((a.clone(), a.clone(), b.clone()))
}

fn handed<T: Clone>(a: Option<&T>, b: Option<&T>) -> Answer<Option<T>> {
    back(&a.cloned(), &b.cloned())
}

impl ValueSuite for Suite {
    fn echo_money(&self, a: Money, b: Money) -> Answer<Money> {
        back(&a, &b)
    }

    fn echo_widest(&self, a: Widest, b: Widest) -> Answer<Widest> {
        back(&a, &b)
    }

    fn echo_node(&self, a: Option<&NodeRef>, b: Option<&NodeRef>) -> Answer<Option<NodeRef>> {
        handed(a, b)
    }

    fn echo_nodes(&self, a: &[Option<NodeRef>], b: &[Option<NodeRef>]) -> Answer<NodeSeq> {
        back(&a.to_vec(), &b.to_vec())
    }

    fn echo_base(&self, a: Option<&BaseRef>, b: Option<&BaseRef>) -> Answer<Option<BaseRef>> {
        handed(a, b)
    }

    fn echo_title(&self, a: Option<&TitleRef>, b: Option<&TitleRef>) -> Answer<Option<TitleRef>> {
        handed(a, b)
    }

    fn echo_words(&self, a: Option<&WordsRef>, b: Option<&WordsRef>) -> Answer<Option<WordsRef>> {
        handed(a, b)
    }

    fn echo_described(&self, a: Option<&DescribedRef>, b: Option<&DescribedRef>) -> Answer<Option<DescribedRef>> {
        handed(a, b)
    }

    fn echo_choice(&self, a: &Choice, b: &Choice) -> Answer<Choice> {
        back(a, b)
    }

    fn echo_pair(&self, a: &Pair, b: &Pair) -> Answer<Pair> {
        back(a, b)
    }

    fn echo_on_key(&self, a: &OnKey, b: &OnKey) -> Answer<OnKey> {
        back(a, b)
    }

    fn echo_on_card(&self, a: &OnCard, b: &OnCard) -> Answer<OnCard> {
        back(a, b)
    }

    fn echo_folder(&self, a: &Folder, b: &Folder) -> Answer<Folder> {
        back(a, b)
    }

    fn echo_shape(&self, a: Option<&ShapeRef>, b: Option<&ShapeRef>) -> Answer<Option<ShapeRef>> {
        handed(a, b)
    }

    fn echo_stamp(&self, a: Option<&StampRef>, b: Option<&StampRef>) -> Answer<Option<StampRef>> {
        handed(a, b)
    }

    fn echo_value(&self, a: Option<&AnyValueRef>, b: Option<&AnyValueRef>) -> Answer<Option<AnyValueRef>> {
        handed(a, b)
    }

    fn echo_any(&self, a: &Any, b: &Any) -> Answer<Any> {
        back(a, b)
    }

    fn repack(&self, node: &Any) -> Result<Any, SystemException> {
        Any::new(&node.extract::<Option<NodeRef>>()?)
    }

    fn walk(&self, start: Option<&NodeRef>) -> Result<String, SystemException> {
        Ok(walk(start, &mut Vec::new()))
    }

    fn server_thing(&self) -> Result<Option<ThingRef>, SystemException> {
        Ok(Some(self.thing.clone()))
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        self.stop.shutdown();
        Ok(())
    }
}

fn serves(peer: Peer) {
    let folder = folder(&format!("values-from-{}", peer.name()));
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    register(&orb);
    let thing = corelane::Reference::from_object(orb.root_poa().activate(&Thing::servant(MyThing)).unwrap());
    let suite = Suite { thing, stop: orb.shutdown_handle() };
    let suite = orb.root_poa().activate(&ValueSuite::servant(suite)).unwrap();
    orb.root_poa().manager().activate().unwrap();
    let mut client = peers().values_command(peer);
    client.args(["--call", &suite.to_string()]);
    let finished = process::run(client, "client", &folder, Duration::from_secs(120)).unwrap();
    let report = Report::parse(&finished.output).unwrap_or_else(|trouble| panic!("{trouble}\n{}", finished.output));
    let skips = Skips::for_pair("corelane", peer.name(), Skips::VALUES_VARIANT).unwrap();
    assert_eq!(skips.differences(&report, TrafficCheck::Unchecked), [""; 0]);
    assert!(report.passed.len() >= 10, "{}", finished.output);
}

#[test]
fn omniorb_serves_values() {
    calls(OmniOrb);
}

#[test]
fn jacorb_serves_values() {
    calls(JacOrb);
}

#[test]
fn omniorb_calls_with_values() {
    serves(OmniOrb);
}

#[test]
fn jacorb_calls_with_values() {
    serves(JacOrb);
}
