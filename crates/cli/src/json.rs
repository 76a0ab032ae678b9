//! Conversion of IDL values to JSON and back.
//!
//! | IDL | JSON |
//! |---|---|
//! | numbers, `fixed`, `long double` | numbers |
//! | char, string, enumerators | strings |
//! | structures, exceptions | objects |
//! | unions | `{"discriminator": ..., "NAME": ...}`; the first may be omitted if NAME implies it |
//! | sequences, arrays | arrays |
//! | sequences, arrays of octets | string of hexadecimal digits; input may be an array of numbers |
//! | maps | arrays of `{"key": ..., "value": ...}` |
//! | bit masks, bit sets | one number |
//! | values (IDL `valuetype`) | objects with the whole state, or null; see below |
//! | references | `"IOR:..."` or null |
//! | any | `{"type": "long", "value": 1}`; without a type: string, boolean, long long or double |
//! | TypeCodes | the name of a type |
//!
//! A value box is shown as the value inside the box. A value that occurred before is `{"same as":
//! 0}`, with its index in the order of values. A value of another type than the declared one is
//! `{"type": NAME, "value": ...}`.

use corelane::{Any, LongDouble, Octets, TypeCode, TypeCodeKind, Value};
use corelane_wire::dynamic::{UnionValue, ValueInstance};
use corelane_wire::ior::{Ior, ObjectUrl};
use corelane_wire::{AnyValue, Limits};
use serde_json::{Map, Number, Value as Json};

use crate::idl_types::Types;
use crate::text::excerpt;

pub(crate) fn any_to_json(any: &Any) -> Json {
    match any.value() {
        Ok(value) => shown(&value, any.type_code()),
        Err(error) => Json::String(format!("({error})")),
    }
}

pub(crate) fn value_to_json(value: &Value, type_code: &TypeCode) -> Json {
    shown(value, type_code)
}

fn shown(value: &Value, type_code: &TypeCode) -> Json {
    let resolved = type_code.unaliased();
    let float = |number: f64| Number::from_f64(number).map_or_else(|| Json::String(number.to_string()), Json::Number);
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => Json::Bool(*value),
        Value::Octet(value) => Json::from(*value),
        Value::Short(value) => Json::from(*value),
        Value::UShort(value) => Json::from(*value),
        Value::Long(value) => Json::from(*value),
        Value::ULong(value) => Json::from(*value),
        Value::LongLong(value) => Json::from(*value),
        Value::ULongLong(value) => Json::from(*value),
        Value::Float(value) => float((*value).into()),
        Value::Double(value) => float(*value),
        Value::LongDouble(value) => float(LongDouble(*value).to_f64()),
        Value::Char(value) | Value::WChar(value) => Json::String(value.to_string()),
        Value::String(value) | Value::WString(value) => Json::String(value.clone()),
        Value::Fixed(value) => Json::String(fixed_text(*value, &resolved)),
        Value::Enum(number) => {
            let name = resolved.member_name(*number as usize).unwrap_or_default();
            if name.is_empty() { Json::from(*number) } else { Json::String(name.to_owned()) }
        }
        Value::TypeCode(value) => Json::String(value.to_string()),
        Value::Any(any) => {
            typed(any.type_code(), any.value().map_or(Json::Null, |value| shown(&value, any.type_code())))
        }
        Value::Object(ior) if ior.is_nil() => Json::Null,
        Value::Object(ior) => Json::String(ior.to_text().unwrap_or_default()),
        Value::Struct(members) => {
            let member = |(index, value): (usize, &Value)| {
                let name = resolved.member_name(index).unwrap_or_default().to_owned();
                (name, shown(value, &resolved.member_type(index).unwrap_or(TypeCode::NULL)))
            };
            Json::Object(members.iter().enumerate().map(member).collect())
        }
        Value::Union(union) => shown_union(union, &resolved),
        Value::List(list) => {
            let element = resolved.content_type().unwrap_or(TypeCode::NULL);
            Json::Array(list.iter().map(|value| shown(value, &element)).collect())
        }
        Value::Octets(octets) => Json::String(hexadecimal(octets)),
        Value::Instance(instance) if instance.type_code.id() == resolved.id() => shown_instance(instance),
        Value::Instance(instance) => typed(&instance.type_code, shown_instance(instance)),
        Value::InstanceRef(number) => Json::Object(Map::from_iter([("same as".to_owned(), Json::from(*number))])),
    }
}

pub(crate) fn hexadecimal(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() * 2);
    for octet in octets {
        for digit in [octet >> 4, octet & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
        }
    }
    text
}

/// Parses octets in hexadecimal. White space between two octets is ignored.
pub(crate) fn parse_hexadecimal(text: &str) -> Option<Octets> {
    let mut octets = Vec::with_capacity(text.len() / 2);
    for word in text.split_ascii_whitespace() {
        let digits = word.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => {
                let digit = |letter: u8| char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                Some(digit(*high)? << 4 | digit(*low)?)
            }
            _ => None,
        });
        for octet in digits {
            octets.push(octet?);
        }
    }
    Some(octets.into())
}

pub(crate) fn is_of_octets(type_code: &TypeCode) -> bool {
    let resolved = type_code.unaliased();
    let element = || resolved.content_type().map(|element| element.unaliased().kind());
    matches!(resolved.kind(), TypeCodeKind::Sequence | TypeCodeKind::Array) && element() == Some(TypeCodeKind::Octet)
}

fn typed(type_code: &TypeCode, value: Json) -> Json {
    let name = Json::String(type_code.to_string());
    Json::Object(Map::from_iter([("type".to_owned(), name), ("value".to_owned(), value)]))
}

fn shown_instance(instance: &ValueInstance) -> Json {
    if let (Some(boxed), [held]) = (instance.type_code.content_type(), instance.state.as_slice()) {
        return shown(held, &boxed);
    }
    let members = instance.type_code.state_members().into_iter().zip(&instance.state);
    Json::Object(members.map(|(member, value)| (member.name, shown(value, &member.ty))).collect())
}

fn shown_union(union: &UnionValue, type_code: &TypeCode) -> Json {
    let discriminator = type_code.discriminator_type().unwrap_or(TypeCode::NULL).unaliased();
    let number = union.discriminator;
    let label = match discriminator.kind() {
        TypeCodeKind::Boolean => Json::Bool(number != 0),
        TypeCodeKind::Enum => shown(&Value::Enum(u32::try_from(number).unwrap_or_default()), &discriminator),
        TypeCodeKind::Char | TypeCodeKind::WChar => {
            let character = u32::try_from(number).ok().and_then(char::from_u32).unwrap_or_default();
            Json::String(character.to_string())
        }
        _ => i64::try_from(number).map_or_else(|_| Json::from(u64::try_from(number).unwrap_or_default()), Json::from),
    };
    let mut object = Map::new();
    object.insert("discriminator".to_owned(), label);
    if let (Some(member), Some(arm)) = (&union.member, chosen(type_code, number)) {
        let name = type_code.member_name(arm).unwrap_or_default().to_owned();
        object.insert(name, shown(member, &type_code.member_type(arm).unwrap_or(TypeCode::NULL)));
    }
    Json::Object(object)
}

fn chosen(union: &TypeCode, discriminator: i128) -> Option<usize> {
    let labelled = (0..union.member_count()).find(|arm| union.member_label(*arm) == Some(discriminator));
    labelled.or(union.default_index())
}

fn fixed_text(value: i128, type_code: &TypeCode) -> String {
    let (_, scale) = type_code.digits_and_scale().unwrap_or((31, 0));
    let scale = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

pub(crate) fn to_any(json: &Json, type_code: &TypeCode, types: &mut Types<'_>) -> Result<Any, String> {
    let value = read(json, type_code, types)?;
    Any::from_value(type_code, &value).map_err(|error| error.to_string())
}

pub(crate) fn octets_to_any(octets: Vec<u8>, type_code: &TypeCode) -> Result<Any, String> {
    let length = octets.len();
    let any = Any::from_value(type_code, &Value::Octets(octets.into()));
    any.map_err(|error| format!("{length} octets are no {type_code}: {error}"))
}

fn no(json: &Json, type_code: &TypeCode) -> String {
    format!("{} is no {type_code}", shortened(json))
}

fn shortened(json: &Json) -> String {
    excerpt(&json.to_string())
}

fn read(json: &Json, type_code: &TypeCode, types: &mut Types<'_>) -> Result<Value, String> {
    let resolved = type_code.unaliased();
    let wrong = || no(json, type_code);
    macro_rules! integer {
        ($variant:ident) => {
            Value::$variant(integer(json).and_then(|number| number.try_into().ok()).ok_or_else(wrong)?)
        };
    }
    Ok(match resolved.kind() {
        TypeCodeKind::Null | TypeCodeKind::Void if json.is_null() => Value::Null,
        TypeCodeKind::Boolean => Value::Boolean(json.as_bool().ok_or_else(wrong)?),
        TypeCodeKind::Octet => integer!(Octet),
        TypeCodeKind::Short => integer!(Short),
        TypeCodeKind::UShort => integer!(UShort),
        TypeCodeKind::Long => integer!(Long),
        TypeCodeKind::ULong => integer!(ULong),
        TypeCodeKind::LongLong => integer!(LongLong),
        TypeCodeKind::ULongLong => integer!(ULongLong),
        TypeCodeKind::Float => Value::Float(float(json).ok_or_else(wrong)? as f32),
        TypeCodeKind::Double => Value::Double(float(json).ok_or_else(wrong)?),
        TypeCodeKind::LongDouble => Value::LongDouble(LongDouble::from_f64(float(json).ok_or_else(wrong)?).0),
        TypeCodeKind::Char => Value::Char(character(json).ok_or_else(wrong)?),
        TypeCodeKind::WChar => Value::WChar(character(json).ok_or_else(wrong)?),
        TypeCodeKind::String => Value::String(json.as_str().ok_or_else(wrong)?.to_owned()),
        TypeCodeKind::WString => Value::WString(json.as_str().ok_or_else(wrong)?.to_owned()),
        TypeCodeKind::Fixed => Value::Fixed(fixed(json, &resolved).ok_or_else(wrong)?),
        TypeCodeKind::Enum => Value::Enum(enumerator(json, &resolved).ok_or_else(wrong)?),
        TypeCodeKind::TypeCode => Value::TypeCode(named_type(json.as_str().ok_or_else(wrong)?, types)?),
        TypeCodeKind::Any => Value::Any(Box::new(read_any(json, types)?)),
        TypeCodeKind::ObjRef if json.is_null() => Value::Object(Ior::NIL),
        TypeCodeKind::ObjRef | TypeCodeKind::AbstractInterface if !(json.is_object() || json.is_null()) => {
            match ObjectUrl::parse(json.as_str().ok_or_else(wrong)?, &Limits::DEFAULT) {
                Ok(ObjectUrl::Ior(ior)) => Value::Object(ior),
                _ => return Err(format!("{} is not an IOR:", shortened(json))),
            }
        }
        TypeCodeKind::Struct | TypeCodeKind::Except => {
            let member = |index| {
                let name = resolved.member_name(index).unwrap_or_default().to_owned();
                (name, resolved.member_type(index).unwrap_or(TypeCode::NULL))
            };
            let members = (0..resolved.member_count()).map(member).collect();
            Value::Struct(read_members(json, &resolved, members, types)?)
        }
        TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::AbstractInterface if json.is_null() => Value::Null,
        TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::AbstractInterface => {
            match own_type(json, &resolved, types)? {
                Some((own, state)) => read(state, &own, types)?,
                None => {
                    let number = types.number_value();
                    let state = match resolved.content_type() {
                        Some(held) => vec![read(json, &held, types)?],
                        None => {
                            let members = resolved.state_members().into_iter().map(|member| (member.name, member.ty));
                            read_members(json, &resolved, members.collect(), types)?
                        }
                    };
                    Value::Instance(Box::new(ValueInstance { number, type_code: resolved, state }))
                }
            }
        }
        TypeCodeKind::Union => read_union(json, &resolved, types)?,
        TypeCodeKind::Sequence | TypeCodeKind::Array if json.is_string() && is_of_octets(&resolved) => {
            let octets = json.as_str().and_then(parse_hexadecimal);
            Value::Octets(octets.ok_or_else(|| format!("{} (octets are pairs of hexadecimal digits)", wrong()))?)
        }
        TypeCodeKind::Sequence | TypeCodeKind::Array => {
            let element = resolved.content_type().unwrap_or(TypeCode::NULL);
            let list = json.as_array().ok_or_else(wrong)?;
            let mut read_element = |(index, json): (usize, &Json)| {
                read(json, &element, types).map_err(|error| format!("element {index}: {error}"))
            };
            let list = list.iter().enumerate().map(&mut read_element).collect::<Result<Vec<_>, _>>()?;
            let octet = |value: &Value| if let Value::Octet(octet) = value { Some(*octet) } else { None };
            match element.unaliased().kind() {
                TypeCodeKind::Octet => Value::Octets(list.iter().filter_map(octet).collect::<Octets>()),
                _ => Value::List(list),
            }
        }
        _ => return Err(format!("a value of {type_code} cannot be given")),
    })
}

fn own_type<'j>(
    json: &'j Json,
    expected: &TypeCode,
    types: &mut Types<'_>,
) -> Result<Option<(TypeCode, &'j Json)>, String> {
    // The content of a value box may itself be an object with the members `type` and `value`. Such
    // an object does not name another type, because no type inherits from a box.
    if expected.kind() == TypeCodeKind::ValueBox {
        return Ok(None);
    }
    let is_open = expected.kind() == TypeCodeKind::AbstractInterface
        || expected.type_modifier() == Some(ABSTRACT)
        || expected.id() == TypeCode::VALUE_BASE.id();
    let said = json.as_object().filter(|object| object.len() == 2);
    let said = said.and_then(|object| Some((object.get("type")?.as_str()?, object.get("value")?)));
    let members = expected.state_members();
    let has = |name| members.iter().any(|member| member.name == name);
    match said.filter(|_| !(has("type") && has("value"))) {
        Some((name, value)) => {
            let mut found = all_named(name, types);
            if !found.is_empty() {
                // Abstract types are left out: they have no state, so no value has such a type.
                let is_concrete = |own: &TypeCode| {
                    own.type_modifier() != Some(ABSTRACT) && own.kind() != TypeCodeKind::AbstractInterface
                };
                found.retain(|(_, own)| is_concrete(&own.unaliased()) && own.is_substitutable_for(expected));
                if found.is_empty() {
                    return Err(format!("{} is no {expected}", excerpt(name)));
                }
            }
            Ok(Some((only(name, found)?.unaliased(), value)))
        }
        None if is_open => Err(format!("{expected} needs the type of the value: {{\"type\": NAME, \"value\": ...}}")),
        None => Ok(None),
    }
}

/// The type modifier of abstract value types: CORBA::VM_ABSTRACT.
const ABSTRACT: i16 = 2;

fn read_members(
    json: &Json,
    type_code: &TypeCode,
    members: Vec<(String, TypeCode)>,
    types: &mut Types<'_>,
) -> Result<Vec<Value>, String> {
    let object = json.as_object().ok_or_else(|| no(json, type_code))?;
    let mut values = Vec::with_capacity(members.len());
    for (name, ty) in members {
        let member = object.get(&name);
        let member = member.ok_or_else(|| format!("the member `{name}` of {type_code} is missing"))?;
        values.push(read(member, &ty, types).map_err(|error| format!("member `{name}`: {error}"))?);
    }
    if object.len() != values.len() {
        return Err(format!("{} has members that {type_code} does not have", shortened(json)));
    }
    Ok(values)
}

fn integer(json: &Json) -> Option<i128> {
    json.as_i64().map(i128::from).or_else(|| json.as_u64().map(i128::from))
}

fn float(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str()?.parse().ok())
}

fn character(json: &Json) -> Option<char> {
    let mut characters = json.as_str()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

fn fixed(json: &Json, type_code: &TypeCode) -> Option<i128> {
    let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    let (_, scale) = type_code.digits_and_scale()?;
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let missing = usize::try_from(scale).ok()?.checked_sub(part.len())?;
    format!("{whole}{part}{}", "0".repeat(missing)).parse().ok()
}

fn enumerator(json: &Json, type_code: &TypeCode) -> Option<u32> {
    let found = (0..type_code.member_count()).find(|index| type_code.member_name(*index) == json.as_str())?;
    u32::try_from(found).ok()
}

fn read_union(json: &Json, union: &TypeCode, types: &mut Types<'_>) -> Result<Value, String> {
    let object = json.as_object().ok_or_else(|| no(json, union))?;
    let named = object.iter().find(|(name, _)| *name != "discriminator");
    let discriminator = match object.get("discriminator") {
        Some(label) => {
            let of = union.discriminator_type().unwrap_or(TypeCode::NULL).unaliased();
            let number = match of.kind() {
                TypeCodeKind::Boolean => label.as_bool().map(i128::from),
                TypeCodeKind::Enum => enumerator(label, &of).map(i128::from),
                TypeCodeKind::Char | TypeCodeKind::WChar => character(label).map(|one| u32::from(one).into()),
                _ => integer(label),
            };
            number.ok_or_else(|| no(label, &of))?
        }
        None => {
            let name = named.map(|(name, _)| name.as_str());
            let arm = (0..union.member_count()).find(|arm| union.member_name(*arm) == name);
            arm.and_then(|arm| union.member_label(arm)).ok_or("a union needs its discriminator here")?
        }
    };
    let arm = chosen(union, discriminator);
    let member = match (arm, named) {
        (Some(arm), Some((name, json))) if union.member_name(arm) == Some(name) => {
            let member = read(json, &union.member_type(arm).unwrap_or(TypeCode::NULL), types);
            Some(member.map_err(|error| format!("member `{name}`: {error}"))?)
        }
        (None, None) => None,
        _ => return Err(format!("{} does not have the member that its discriminator chooses", shortened(json))),
    };
    Ok(Value::Union(Box::new(UnionValue { discriminator, member })))
}

fn read_any(json: &Json, types: &mut Types<'_>) -> Result<AnyValue, String> {
    let (type_code, value) = match json {
        Json::Object(object) if object.contains_key("type") => {
            let name = object.get("type").and_then(Json::as_str).ok_or("the type of an any must be a name")?;
            (named_type(name, types)?, object.get("value").unwrap_or(&Json::Null))
        }
        Json::Null => (TypeCode::NULL, json),
        Json::Bool(_) => (TypeCode::BOOLEAN, json),
        Json::String(_) => (TypeCode::STRING, json),
        Json::Number(number) if number.is_f64() => (TypeCode::DOUBLE, json),
        Json::Number(_) => (TypeCode::LONG_LONG, json),
        _ => return Err(format!("{} needs a type: {{\"type\": NAME, \"value\": ...}}", shortened(json))),
    };
    let value = read(value, &type_code, types)?;
    AnyValue::from_value(&type_code, &value).map_err(|error| error.to_string())
}

fn named_type(name: &str, types: &mut Types<'_>) -> Result<TypeCode, String> {
    only(name, all_named(name, types))
}

fn only(name: &str, mut found: Vec<(String, TypeCode)>) -> Result<TypeCode, String> {
    match found.pop() {
        Some((_, type_code)) if found.is_empty() => Ok(type_code),
        Some(last) => {
            let names: Vec<String> = found.into_iter().chain([last]).map(|(name, _)| name).collect();
            Err(format!("`{}` can be {}", excerpt(name), names.join(" or ")))
        }
        None => Err(format!("there is no type `{}`", excerpt(name))),
    }
}

/// Returns all types with this name, each with its unambiguous name.
fn all_named(name: &str, types: &mut Types<'_>) -> Vec<(String, TypeCode)> {
    let basics = [
        TypeCode::NULL,
        TypeCode::VOID,
        TypeCode::SHORT,
        TypeCode::LONG,
        TypeCode::USHORT,
        TypeCode::ULONG,
        TypeCode::FLOAT,
        TypeCode::DOUBLE,
        TypeCode::BOOLEAN,
        TypeCode::CHAR,
        TypeCode::OCTET,
        TypeCode::ANY,
        TypeCode::TYPE_CODE,
        TypeCode::LONG_LONG,
        TypeCode::ULONG_LONG,
        TypeCode::LONG_DOUBLE,
        TypeCode::WCHAR,
        TypeCode::STRING,
        TypeCode::WSTRING,
    ];
    if let Some(basic) = basics.into_iter().find(|basic| basic.kind().name() == name) {
        return vec![(name.to_owned(), basic)];
    }
    // The printed form begins with the kind, for example `struct Point`, so the last word is the
    // name.
    let found = types.named(name.rsplit(' ').next().unwrap_or_default());
    let made = |id| Some((format!("::{}", types.scoped_name(id)), types.of_definition(id).ok()?));
    found.into_iter().filter_map(made).collect()
}
