//! Decoding of the operations of `vectors/fix.idl`, and of values by TypeCode, to the JSON form of
//! the vectors.

use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, Decoder, Version};
use serde_json::{Value, json};

use crate::{hex, reference};

const OPERATIONS: [(&str, &[&str], &[&str]); 27] = [
    ("noop", &[], &[]),
    ("note", &["long"], &[]),
    ("cube_octet", &["octet"], &["octet"]),
    ("cube_short", &["short"], &["short"]),
    ("cube_long", &["long"], &["long"]),
    ("cube_struct", &["Many"], &["Many"]),
    ("cube_octets", &["octets"], &["octets"]),
    ("cube_longs", &["longs"], &["longs"]),
    ("cube_manys", &["manys"], &["manys"]),
    ("halve", &["double", "boolean", "long long"], &["double", "long long"]),
    ("echo", &["string"], &["string"]),
    ("wecho", &["wstring"], &["wstring"]),
    ("choose", &["Pick", "Color"], &["Pick"]),
    ("box", &["any"], &["any"]),
    ("me", &["Object"], &["Object"]),
    ("fail", &["long"], &[]),
    ("deny", &[], &[]),
    ("slow", &["unsigned long"], &[]),
    ("running_priority", &[], &["short"]),
    ("shutdown", &[], &[]),
    ("missing", &["long"], &[]),
    ("_is_a", &["string"], &["boolean"]),
    ("_non_existent", &[], &["boolean"]),
    ("_repository_id", &[], &["string"]),
    ("_interface", &[], &["Object"]),
    ("_component", &[], &["Object"]),
    ("_bind_priority_band", &[], &[]),
];

fn signature(operation: &str) -> (&'static [&'static str], &'static [&'static str]) {
    let found = OPERATIONS.iter().find(|entry| entry.0 == operation);
    found.map(|entry| (entry.1, entry.2)).unwrap_or_else(|| panic!("operation {operation:?}"))
}

pub(crate) fn arguments(operation: &str, d: &mut Decoder<'_>) -> Value {
    signature(operation).0.iter().map(|kind| value(kind, d)).collect()
}

pub(crate) fn results(operation: &str, d: &mut Decoder<'_>) -> Value {
    signature(operation).1.iter().map(|kind| value(kind, d)).collect()
}

fn many(d: &mut Decoder<'_>) -> Value {
    json!({"o": d.read_u8().unwrap(), "l": d.read_i32().unwrap(), "s": d.read_i16().unwrap()})
}

fn value(kind: &str, d: &mut Decoder<'_>) -> Value {
    const COLORS: [&str; 3] = ["red", "green", "blue"];
    match kind {
        "octet" => json!(d.read_u8().unwrap()),
        "boolean" => json!(d.read_bool().unwrap()),
        "short" => json!(d.read_i16().unwrap()),
        "long" => json!(d.read_i32().unwrap()),
        "unsigned long" => json!(d.read_u32().unwrap()),
        "long long" => json!(d.read_i64().unwrap()),
        "double" => json!(d.read_f64().unwrap()),
        "string" => json!(d.read_string().unwrap()),
        "wstring" => wide(d),
        "Many" => many(d),
        "octets" => json!(d.read_octet_sequence().unwrap()),
        "longs" => json!(Vec::<i32>::decode(d).unwrap()),
        "manys" => {
            let len = d.read_len(7).unwrap();
            (0..len).map(|_| many(d)).collect()
        }
        "Color" => json!(COLORS[d.read_enum(3).unwrap() as usize]),
        "Pick" => {
            let color = d.read_enum(3).unwrap() as usize;
            let arm = ["long", "string", "boolean"][color];
            json!({"discriminator": COLORS[color], "value": value(arm, d)})
        }
        "any" => any(d),
        "Object" => reference::ior(&Ior::decode(d).unwrap()),
        other => panic!("type {other}"),
    }
}

fn wide(d: &mut Decoder<'_>) -> Value {
    let mut raw = d.clone();
    let len = raw.read_u32().unwrap() as usize;
    let text = d.read_wstring().unwrap();
    if d.version() == Version::GIOP_1_1 {
        let octets = raw.read_bytes(len * 2).unwrap();
        return json!({"characters_with_terminator": len, "utf16_hex": hex(octets), "text": text});
    }
    json!({"octets": len, "utf16_hex": hex(raw.read_bytes(len).unwrap()), "text": text})
}

#[derive(Clone)]
enum Type {
    Plain(&'static str, &'static str),
    Text(u32),
    Struct { id: String, name: String, members: Vec<(String, Type)> },
}

fn type_code(d: &mut Decoder<'_>) -> Type {
    match d.read_u32().unwrap() {
        2 => Type::Plain("tk_short", "short"),
        3 => Type::Plain("tk_long", "long"),
        10 => Type::Plain("tk_octet", "octet"),
        18 => Type::Text(d.read_u32().unwrap()),
        15 => {
            let mut d = d.read_encapsulation().unwrap();
            let (id, name) = (d.read_latin1_string().unwrap(), d.read_latin1_string().unwrap());
            let len = d.read_len(8).unwrap();
            let members = (0..len).map(|_| (d.read_latin1_string().unwrap(), type_code(&mut d))).collect();
            Type::Struct { id, name, members }
        }
        other => panic!("TypeCode {other}"),
    }
}

impl Type {
    fn describe(&self) -> Value {
        match self {
            Type::Plain(name, _) => json!({"kind": name}),
            Type::Text(bound) => json!({"kind": "tk_string", "bound": bound}),
            Type::Struct { id, name, members } => {
                let members: Vec<Value> =
                    members.iter().map(|(name, member)| json!({"name": name, "type": member.describe()})).collect();
                json!({"kind": "tk_struct", "id": id, "name": name, "members": members})
            }
        }
    }

    fn read(&self, d: &mut Decoder<'_>) -> Value {
        match self {
            Type::Plain(_, kind) => value(kind, d),
            Type::Text(_) => value("string", d),
            Type::Struct { members, .. } => {
                members.iter().map(|(name, member)| (name.clone(), member.read(d))).collect()
            }
        }
    }
}

fn any(d: &mut Decoder<'_>) -> Value {
    let kind = type_code(d);
    json!({"type": kind.describe(), "value": kind.read(d)})
}
