//! The parts of a value: a table in which each part has its place, so that values (IDL `valuetype`) can be shared and lead in
//! circles.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use corelane_wire::dynamic::{Instance, UnionValue};
use corelane_wire::{CdrError, Octets};

use super::DynAnyError;
use super::kinds::{chosen, label_number, label_value};
use crate::any::{Kind, TypeCode, Value};

/// Parts inside parts that are put together to one value.
const DEEPEST: u32 = 512;
/// Parts that a table may have before it is looked whether all of them are still needed.
const TIDY_AT: usize = 256;

/// The table. Parts that are cut off stay in it until it is copied.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    list: Vec<Part>,
    /// Of how many parts on a copy without what was cut off is worth its time.
    tidy_at: usize,
    /// Tells a table and its copies from others.
    pub(super) identity: Arc<u8>,
}

/// A value and its type, apart from what it consists of.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) type_code: TypeCode,
    pub(super) content: Content,
    /// The current component; `None` is the position -1.
    pub(super) position: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A value without components; null.
    Leaf(Value),
    /// The places of members and elements; of a union the discriminator and the active member, if there is one.
    Parts(Vec<u32>),
}

impl Content {
    fn is_empty(&self) -> bool {
        match self {
            Content::Leaf(_) => true,
            Content::Parts(parts) => parts.is_empty(),
        }
    }
}

static NOTHING: Part = Part::new(TypeCode::NULL, Content::Leaf(Value::Null));

impl Part {
    const fn new(type_code: TypeCode, content: Content) -> Part {
        Part { type_code, content, position: None }
    }

    pub(super) fn parts(&self) -> &[u32] {
        match &self.content {
            Content::Parts(parts) => parts,
            Content::Leaf(_) => &[],
        }
    }

    /// Changes what it consists of; the first component is current.
    pub(super) fn set(&mut self, content: Content) {
        self.position = (!content.is_empty()).then_some(0);
        self.content = content;
    }

    /// Whether it is a value of IDL `valuetype`, or null in place of one: something that can be in several places.
    pub(super) fn is_value(&self) -> bool {
        matches!(self.type_code.resolved().kind(), Kind::Value | Kind::ValueBox | Kind::Event)
    }
}

impl Parts {
    pub(super) fn new() -> Parts {
        Parts { list: Vec::new(), tidy_at: TIDY_AT, identity: Arc::default() }
    }

    /// The part and all it consists of, in a table of its own.
    pub(super) fn only(&self, top: u32) -> (Parts, u32) {
        let mut parts = Parts::new();
        let top = parts.take(Some(self), top, &mut HashMap::new());
        parts.tidy_at = TIDY_AT.max(parts.list.len().saturating_mul(2));
        (parts, top)
    }

    pub(super) fn is_untidy(&self) -> bool {
        self.list.len() > self.tidy_at
    }

    pub(super) fn get(&self, at: u32) -> &Part {
        self.list.get(at as usize).unwrap_or(&NOTHING)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Result<&mut Part, DynAnyError> {
        self.list.get_mut(at as usize).ok_or(DynAnyError::InvalidValue)
    }

    pub(super) fn add(&mut self, type_code: TypeCode, content: Content) -> u32 {
        let mut part = Part::new(type_code, Content::Leaf(Value::Null));
        part.set(content);
        self.list.push(part);
        u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn add_leaf(&mut self, type_code: &TypeCode, value: Value) -> u32 {
        self.add(type_code.clone(), Content::Leaf(value))
    }

    // ---- from and to trees -------------------------------------------------------------------------

    /// Takes a tree apart. `met` are the values in it by their numbers.
    pub(super) fn add_value(
        &mut self,
        type_code: &TypeCode,
        value: Value,
        met: &mut HashMap<u32, u32>,
    ) -> Result<u32, DynAnyError> {
        let resolved = type_code.resolved();
        let element = || resolved.content_type().ok_or(DynAnyError::TypeMismatch);
        let mut parts = Vec::new();
        match value {
            Value::Struct(members) => {
                for (index, value) in members.into_iter().enumerate() {
                    let ty = resolved.member_type(index).ok_or(DynAnyError::TypeMismatch)?;
                    parts.push(self.add_value(&ty, value, met)?);
                }
            }
            Value::List(list) => {
                let element = element()?;
                for value in list {
                    parts.push(self.add_value(&element, value, met)?);
                }
            }
            Value::Octets(octets) if resolved.kind() != Kind::Principal => {
                let element = element()?;
                parts.extend(octets.iter().map(|octet| self.add_leaf(&element, Value::Octet(*octet))));
            }
            Value::Union(union) => {
                let discriminator = resolved.discriminator_type().ok_or(DynAnyError::TypeMismatch)?;
                let label = label_value(&discriminator.resolved(), union.discriminator)?;
                parts.push(self.add_leaf(&discriminator, label));
                let arm = chosen(&resolved, union.discriminator).and_then(|arm| resolved.member_type(arm));
                if let (Some(member), Some(ty)) = (union.member, arm) {
                    parts.push(self.add_value(&ty, member, met)?);
                }
            }
            Value::Instance(instance) => return self.add_instance(*instance, met),
            Value::Again(number) => return met.get(&number).copied().ok_or(DynAnyError::InvalidValue),
            leaf => return Ok(self.add_leaf(type_code, leaf)),
        }
        Ok(self.add(type_code.clone(), Content::Parts(parts)))
    }

    fn add_instance(&mut self, instance: Instance, met: &mut HashMap<u32, u32>) -> Result<u32, DynAnyError> {
        let Instance { number, type_code, state } = instance;
        let place = self.add_leaf(&type_code, Value::Null);
        met.insert(number, place);
        let mut parts = Vec::new();
        for (value, (_, ty)) in state.into_iter().zip(state_of(&type_code)) {
            parts.push(self.add_value(&ty, value, met)?);
        }
        self.get_mut(place)?.set(Content::Parts(parts));
        Ok(place)
    }

    /// Puts a tree together. `met` are the numbers of the values in it by their places.
    pub(super) fn value(&self, at: u32, met: &mut HashMap<u32, u32>, depth: u32) -> Result<Value, DynAnyError> {
        if depth > DEEPEST {
            return Err(CdrError::TooDeep.into());
        }
        let part = self.get(at);
        let places = match &part.content {
            Content::Leaf(value) => return Ok(value.clone()),
            Content::Parts(places) => places,
        };
        let values = |met: &mut HashMap<u32, u32>| {
            places.iter().map(|place| self.value(*place, met, depth + 1)).collect::<Result<Vec<_>, _>>()
        };
        let resolved = part.type_code.resolved();
        let is_octet = resolved.content_type().is_some_and(|element| element.resolved().kind() == Kind::Octet);
        Ok(match resolved.kind() {
            Kind::Struct | Kind::Except => Value::Struct(values(met)?),
            Kind::Union => {
                let discriminator = self.label(at)?;
                let member = places.get(1).map(|place| self.value(*place, met, depth + 1)).transpose()?;
                Value::Union(Box::new(UnionValue { discriminator, member }))
            }
            Kind::Value | Kind::ValueBox | Kind::Event => {
                if let Some(number) = met.get(&at) {
                    return Ok(Value::Again(*number));
                }
                let number = u32::try_from(met.len()).unwrap_or(u32::MAX);
                met.insert(at, number);
                Value::Instance(Box::new(Instance { number, type_code: resolved, state: values(met)? }))
            }
            _ if is_octet => {
                let octet = |place: &u32| match self.get(*place).content {
                    Content::Leaf(Value::Octet(octet)) => octet,
                    _ => 0,
                };
                Value::Octets(places.iter().map(octet).collect::<Octets>())
            }
            _ => Value::List(values(met)?),
        })
    }

    /// The discriminator of a union as a number.
    pub(super) fn label(&self, at: u32) -> Result<i128, DynAnyError> {
        match self.get(at).parts().first().map(|place| &self.get(*place).content) {
            Some(Content::Leaf(value)) => label_number(value).ok_or(DynAnyError::TypeMismatch),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    // ---- copies and comparison ---------------------------------------------------------------------

    /// Copies a part and all it consists of: from another table, of which `copied` are the values that were copied before, or within
    /// this one, where values are not copied but shared.
    pub(super) fn take(&mut self, from: Option<&Parts>, top: u32, copied: &mut HashMap<u32, u32>) -> u32 {
        let mut open = Vec::new();
        let first = self.take_one(from, top, copied, &mut open);
        self.take_open(from, copied, open);
        first
    }

    /// Copies a part of another table, and all it consists of, to a place that there is.
    pub(super) fn take_to(&mut self, place: u32, from: &Parts, top: u32) {
        let mut copied = HashMap::new();
        if from.get(top).is_value() {
            copied.insert(top, place);
        }
        self.take_open(Some(from), &mut copied, vec![(top, place)]);
    }

    fn take_open(&mut self, from: Option<&Parts>, copied: &mut HashMap<u32, u32>, mut open: Vec<(u32, u32)>) {
        while let Some((at, place)) = open.pop() {
            let mut part = from.map_or_else(|| self.get(at).clone(), |from| from.get(at).clone());
            if let Content::Parts(places) = &mut part.content {
                places.iter_mut().for_each(|place| *place = self.take_one(from, *place, copied, &mut open));
            }
            if let Some(slot) = self.list.get_mut(place as usize) {
                *slot = part;
            }
        }
    }

    /// The place of a copy, which `open` says is still to be made.
    fn take_one(
        &mut self,
        from: Option<&Parts>,
        at: u32,
        copied: &mut HashMap<u32, u32>,
        open: &mut Vec<(u32, u32)>,
    ) -> u32 {
        let is_value = from.map_or_else(|| self.get(at).is_value(), |from| from.get(at).is_value());
        if is_value {
            if from.is_none() {
                return at;
            }
            if let Some(place) = copied.get(&at) {
                return *place;
            }
        }
        let place = self.add_leaf(&TypeCode::NULL, Value::Null);
        if is_value {
            copied.insert(at, place);
        }
        open.push((at, place));
        place
    }

    /// Whether two parts are of equivalent types and all that they consist of is equal.
    pub(super) fn same(&self, at: u32, other: &Parts, there: u32) -> bool {
        if !self.get(at).type_code.equivalent(&other.get(there).type_code) {
            return false;
        }
        let mut met = HashSet::new();
        let mut open = vec![(at, there)];
        while let Some((at, there)) = open.pop() {
            let (one, two) = (self.get(at), other.get(there));
            let same = match (&one.content, &two.content) {
                (Content::Leaf(one), Content::Leaf(two)) => one == two,
                (Content::Parts(_), Content::Parts(_)) if one.is_value() && !met.insert((at, there)) => true,
                (Content::Parts(ours), Content::Parts(theirs)) => {
                    open.extend(ours.iter().copied().zip(theirs.iter().copied()));
                    ours.len() == theirs.len() && (!one.is_value() || one.type_code.equivalent(&two.type_code))
                }
                _ => false,
            };
            if !same {
                return false;
            }
        }
        true
    }
}

/// Names and types of what a value (IDL `valuetype`) of a type consists of; what a value box holds has no name.
pub(super) fn state_of(type_code: &TypeCode) -> Vec<(String, TypeCode)> {
    let resolved = type_code.resolved();
    match resolved.content_type() {
        Some(held) => vec![(String::new(), held)],
        None => resolved.state_members().into_iter().map(|member| (member.name, member.ty)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use corelane_wire::typecode::ValueMember;

    use crate::any::TypeCode;
    use crate::dynamic::DynAny;

    #[test]
    fn what_is_cut_off_is_forgotten() {
        let member = |name: &str, ty| ValueMember { name: name.into(), ty, public: true };
        let next = TypeCode::recursive("IDL:Link:1.0");
        let state = [member("names", TypeCode::sequence(TypeCode::STRING, 0).unwrap()), member("next", next)];
        let link = TypeCode::value("IDL:Link:1.0", "Link", 0, None, state).unwrap();
        let mut value = DynAny::of_type(&link).unwrap();
        for _ in 0..1000 {
            value.set_to_null().unwrap();
            value.set_to_value().unwrap();
            value.current_component().unwrap().unwrap().set_length(5).unwrap();
            // A circle of its own, which nothing leads to the next time.
            let mut members = value.members().unwrap();
            members[1].1 = value.clone();
            value
                .set_members(&members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect::<Vec<_>>())
                .unwrap();
        }
        assert!(value.parts.list.len() < 1000, "{}", value.parts.list.len());
        assert!(value.seek(1) && value.current_component().unwrap().unwrap().seek(1));
        let whole = value.clone();
        assert_eq!(*value.current_component().unwrap().unwrap(), whole);
    }
}
