//! The table of the parts of a value, which has a slot for each part.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use corelane_wire::dynamic::{UnionValue, ValueInstance};
use corelane_wire::{CdrError, Octets};

use super::DynAnyError;
use super::kinds::{chosen, label_number, label_value};
use crate::any::{TypeCode, TypeCodeKind, Value};

const MAX_DEPTH: u32 = 512;
const COMPACT_AT: usize = 256;

/// Detached parts stay in the table until it is compacted.
#[derive(Clone, Debug)]
pub(super) struct PartTable {
    list: Vec<DynPart>,
    compact_at: usize,
    /// Identity that only a table and its copies share.
    pub(super) identity: Arc<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct DynPart {
    pub(super) type_code: TypeCode,
    pub(super) content: PartContent,
    /// Index of the current component; `None` is the specification's -1.
    pub(super) position: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum PartContent {
    Leaf(Value),
    /// For a union, the slots of the discriminator and, if there is one, of the active member.
    Parts(Vec<u32>),
}

impl PartContent {
    fn is_empty(&self) -> bool {
        match self {
            PartContent::Leaf(_) => true,
            PartContent::Parts(parts) => parts.is_empty(),
        }
    }
}

static NOTHING: DynPart = DynPart::new(TypeCode::NULL, PartContent::Leaf(Value::Null));

impl DynPart {
    const fn new(type_code: TypeCode, content: PartContent) -> DynPart {
        DynPart { type_code, content, position: None }
    }

    pub(super) fn parts(&self) -> &[u32] {
        match &self.content {
            PartContent::Parts(parts) => parts,
            PartContent::Leaf(_) => &[],
        }
    }

    pub(super) fn set(&mut self, content: PartContent) {
        self.position = (!content.is_empty()).then_some(0);
        self.content = content;
    }

    /// Returns true for the kinds of values that several parents can share.
    pub(super) fn is_value(&self) -> bool {
        matches!(self.type_code.unaliased().kind(), TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event)
    }
}

impl PartTable {
    pub(super) fn new() -> PartTable {
        PartTable { list: Vec::new(), compact_at: COMPACT_AT, identity: Arc::default() }
    }

    pub(super) fn extract(&self, top: u32) -> (PartTable, u32) {
        let mut parts = PartTable::new();
        let top = parts.copy_part(Some(self), top, &mut HashMap::new());
        parts.compact_at = COMPACT_AT.max(parts.list.len().saturating_mul(2));
        (parts, top)
    }

    pub(super) fn needs_compaction(&self) -> bool {
        self.list.len() > self.compact_at
    }

    pub(super) fn get(&self, at: u32) -> &DynPart {
        self.list.get(at as usize).unwrap_or(&NOTHING)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Result<&mut DynPart, DynAnyError> {
        self.list.get_mut(at as usize).ok_or(DynAnyError::InvalidValue)
    }

    pub(super) fn add(&mut self, type_code: TypeCode, content: PartContent) -> u32 {
        let mut part = DynPart::new(type_code, PartContent::Leaf(Value::Null));
        part.set(content);
        self.list.push(part);
        u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn add_leaf(&mut self, type_code: &TypeCode, value: Value) -> u32 {
        self.add(type_code.clone(), PartContent::Leaf(value))
    }

    /// Adds a value with its parts, and returns its slot. `met` maps the numbers of shared values
    /// to their slots.
    pub(super) fn add_value(
        &mut self,
        type_code: &TypeCode,
        value: Value,
        met: &mut HashMap<u32, u32>,
    ) -> Result<u32, DynAnyError> {
        let resolved = type_code.unaliased();
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
            Value::Octets(octets) if resolved.kind() != TypeCodeKind::Principal => {
                let element = element()?;
                parts.extend(octets.iter().map(|octet| self.add_leaf(&element, Value::Octet(*octet))));
            }
            Value::Union(union) => {
                let discriminator = resolved.discriminator_type().ok_or(DynAnyError::TypeMismatch)?;
                let label = label_value(&discriminator.unaliased(), union.discriminator)?;
                parts.push(self.add_leaf(&discriminator, label));
                let arm = chosen(&resolved, union.discriminator).and_then(|arm| resolved.member_type(arm));
                if let (Some(member), Some(ty)) = (union.member, arm) {
                    parts.push(self.add_value(&ty, member, met)?);
                }
            }
            Value::Instance(instance) => return self.add_instance(*instance, met),
            Value::InstanceRef(number) => return met.get(&number).copied().ok_or(DynAnyError::InvalidValue),
            leaf => return Ok(self.add_leaf(type_code, leaf)),
        }
        Ok(self.add(type_code.clone(), PartContent::Parts(parts)))
    }

    fn add_instance(&mut self, instance: ValueInstance, met: &mut HashMap<u32, u32>) -> Result<u32, DynAnyError> {
        let ValueInstance { number, type_code, state } = instance;
        let place = self.add_leaf(&type_code, Value::Null);
        met.insert(number, place);
        let mut parts = Vec::new();
        for (value, (_, ty)) in state.into_iter().zip(state_of(&type_code)) {
            parts.push(self.add_value(&ty, value, met)?);
        }
        self.get_mut(place)?.set(PartContent::Parts(parts));
        Ok(place)
    }

    pub(super) fn value(&self, at: u32, met: &mut HashMap<u32, u32>, depth: u32) -> Result<Value, DynAnyError> {
        if depth > MAX_DEPTH {
            return Err(CdrError::NestingTooDeep.into());
        }
        let part = self.get(at);
        let places = match &part.content {
            PartContent::Leaf(value) => return Ok(value.clone()),
            PartContent::Parts(places) => places,
        };
        let values = |met: &mut HashMap<u32, u32>| {
            places.iter().map(|place| self.value(*place, met, depth + 1)).collect::<Result<Vec<_>, _>>()
        };
        let resolved = part.type_code.unaliased();
        let is_octet = resolved.content_type().is_some_and(|element| element.unaliased().kind() == TypeCodeKind::Octet);
        Ok(match resolved.kind() {
            TypeCodeKind::Struct | TypeCodeKind::Except => Value::Struct(values(met)?),
            TypeCodeKind::Union => {
                let discriminator = self.label(at)?;
                let member = places.get(1).map(|place| self.value(*place, met, depth + 1)).transpose()?;
                Value::Union(Box::new(UnionValue { discriminator, member }))
            }
            TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event => {
                if let Some(number) = met.get(&at) {
                    return Ok(Value::InstanceRef(*number));
                }
                let number = u32::try_from(met.len()).unwrap_or(u32::MAX);
                met.insert(at, number);
                Value::Instance(Box::new(ValueInstance { number, type_code: resolved, state: values(met)? }))
            }
            _ if is_octet => {
                let octet = |place: &u32| match self.get(*place).content {
                    PartContent::Leaf(Value::Octet(octet)) => octet,
                    _ => 0,
                };
                Value::Octets(places.iter().map(octet).collect::<Octets>())
            }
            _ => Value::List(values(met)?),
        })
    }

    pub(super) fn label(&self, at: u32) -> Result<i128, DynAnyError> {
        match self.get(at).parts().first().map(|place| &self.get(*place).content) {
            Some(PartContent::Leaf(value)) => label_number(value).ok_or(DynAnyError::TypeMismatch),
            _ => Err(DynAnyError::TypeMismatch),
        }
    }

    /// Copies the part `top` with its components, and returns the slot of the copy. `None` for
    /// `from` means this table, whose shared values are not copied. `copied` maps the slots of
    /// shared values to the slots of their copies.
    pub(super) fn copy_part(&mut self, from: Option<&PartTable>, top: u32, copied: &mut HashMap<u32, u32>) -> u32 {
        let mut open = Vec::new();
        let first = self.reserve_copy(from, top, copied, &mut open);
        self.copy_pending(from, copied, open);
        first
    }

    pub(super) fn copy_part_to(&mut self, place: u32, from: &PartTable, top: u32) {
        let mut copied = HashMap::new();
        if from.get(top).is_value() {
            copied.insert(top, place);
        }
        self.copy_pending(Some(from), &mut copied, vec![(top, place)]);
    }

    fn copy_pending(&mut self, from: Option<&PartTable>, copied: &mut HashMap<u32, u32>, mut open: Vec<(u32, u32)>) {
        while let Some((at, place)) = open.pop() {
            let mut part = from.map_or_else(|| self.get(at).clone(), |from| from.get(at).clone());
            if let PartContent::Parts(places) = &mut part.content {
                places.iter_mut().for_each(|place| *place = self.reserve_copy(from, *place, copied, &mut open));
            }
            if let Some(slot) = self.list.get_mut(place as usize) {
                *slot = part;
            }
        }
    }

    fn reserve_copy(
        &mut self,
        from: Option<&PartTable>,
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

    pub(super) fn is_equal(&self, at: u32, other: &PartTable, there: u32) -> bool {
        if !self.get(at).type_code.equivalent(&other.get(there).type_code) {
            return false;
        }
        let mut met = HashSet::new();
        let mut open = vec![(at, there)];
        while let Some((at, there)) = open.pop() {
            let (one, two) = (self.get(at), other.get(there));
            let same = match (&one.content, &two.content) {
                (PartContent::Leaf(one), PartContent::Leaf(two)) => one == two,
                (PartContent::Parts(_), PartContent::Parts(_)) if one.is_value() && !met.insert((at, there)) => true,
                (PartContent::Parts(ours), PartContent::Parts(theirs)) => {
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

/// Returns the names and types of a value's state members. The name of a value box's content is
/// empty.
pub(super) fn state_of(type_code: &TypeCode) -> Vec<(String, TypeCode)> {
    let resolved = type_code.unaliased();
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
    fn unreachable_parts_are_removed() {
        let member = |name: &str, ty| ValueMember { name: name.into(), ty, is_public: true };
        let next = TypeCode::recursive("IDL:Link:1.0");
        let state = [member("names", TypeCode::sequence(TypeCode::STRING, 0).unwrap()), member("next", next)];
        let link = TypeCode::value("IDL:Link:1.0", "Link", 0, None, state).unwrap();
        let mut value = DynAny::from_type_code(&link).unwrap();
        for _ in 0..1000 {
            value.set_to_null().unwrap();
            value.set_to_value().unwrap();
            value.current_component().unwrap().unwrap().set_length(5).unwrap();
            // Each iteration makes a cycle, which becomes unreachable in the next iteration.
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
