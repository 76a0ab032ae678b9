//! The decoding of TypeCodes.

use std::sync::Arc;

use super::encode::read_label;
use super::graph::{Child, Graph, Node, NodeMember};
use super::{INDIRECTION, TypeCode, TypeCodeKind, TypeCodeRepr, description};
use crate::cdr::{CdrError, Decoder};

/// Reads a TypeCode, which takes memory in proportion to its encoded size.
pub(super) fn read(d: &mut Decoder<'_>) -> Result<TypeCode, CdrError> {
    let number = d.read_u32()?;
    if let Some(kind) = TypeCodeKind::from_number(number)
        && kind.is_basic()
    {
        return Ok(TypeCode::from_description(description::for_kind(kind)));
    }
    // Positions are counted from the kind of the outermost TypeCode.
    let end = d.remaining_len() + KIND;
    let (nodes, seen) = (Vec::with_capacity(1), Vec::with_capacity(1));
    let mut reader = TypeCodeReader { nodes, seen, open: Vec::new(), copied: 0 };
    d.charge_block(size_of::<Graph>())?;
    match reader.of_kind(number, d, end)? {
        Child::SameGraph(index) => {
            Ok(TypeCode(TypeCodeRepr::Graph(Arc::new(Graph { nodes: reader.nodes, incomplete: false }), index)))
        }
        Child::OtherGraph(type_code) => Ok(type_code),
        Child::Placeholder(_) => Err(CdrError::BadIndirection),
    }
}

const KIND: usize = 4;

struct TypeCodeReader {
    nodes: Vec<Node>,
    /// The position of the kind of each type that was read or is being read, in ascending order.
    seen: Vec<(usize, Child)>,
    open: Vec<u32>,
    /// The number of levels of types that an encoder will write in place of received indirections.
    copied: u32,
}

/// Maximum number of levels that the encoder may copy when it writes the type.
const MAX_COPIED_LEVELS: u32 = 4096;

impl TypeCodeReader {
    fn read(&mut self, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let number = d.read_u32()?;
        self.of_kind(number, d, end)
    }

    fn of_kind(&mut self, number: u32, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let behind = end - d.remaining_len();
        if number == INDIRECTION {
            let offset = i64::from(d.read_i32()?);
            let from = i64::try_from(behind).map_err(|_| CdrError::BadIndirection)?;
            let target = usize::try_from(from + offset).map_err(|_| CdrError::BadIndirection)?;
            let found = self.seen.binary_search_by_key(&target, |(place, _)| *place);
            let seen = found.ok().and_then(|index| self.seen.get(index));
            let child = seen.map(|(_, child)| child.clone()).ok_or(CdrError::BadIndirection)?;
            self.count_copy(&child, d)?;
            return Ok(child);
        }
        let kind = TypeCodeKind::from_number(number).ok_or(CdrError::BadTypeCode)?;
        let at = behind - KIND;
        let known = match kind {
            _ if kind.is_basic() => Some(description::for_kind(kind)),
            TypeCodeKind::String | TypeCodeKind::WString => match (d.read_u32()?, kind) {
                (0, TypeCodeKind::String) => Some(description::STRING),
                (0, _) => Some(description::WSTRING),
                (length, _) => return self.add(at, Node { length, ..Node::new(kind) }, d),
            },
            TypeCodeKind::Fixed => {
                let (digits, scale) = (d.read_u16()?, d.read_i16()?);
                if !(1..=31).contains(&digits) {
                    return Err(CdrError::BadTypeCode);
                }
                return self.add(at, Node { length: u32::from(digits), scale, ..Node::new(kind) }, d);
            }
            _ => None,
        };
        if let Some(known) = known {
            let child = Child::OtherGraph(TypeCode::from_description(known));
            d.charge_elements::<(usize, Child)>(1)?;
            self.seen.push((at, child.clone()));
            return Ok(child);
        }
        let child = self.add(at, Node::new(kind), d)?;
        let Child::SameGraph(index) = child else { return Ok(child) };
        self.open.push(index);
        let node = d.read_nested(|d| {
            let mut inner = d.read_encapsulation()?;
            self.parameters(kind, &mut inner, end - d.remaining_len())
        })?;
        self.open.pop();
        if let Some(place) = self.nodes.get_mut(index as usize) {
            *place = node;
        }
        Ok(child)
    }

    fn count_copy(&mut self, child: &Child, d: &Decoder<'_>) -> Result<(), CdrError> {
        let (mut at, mut levels, mut boxes) = (child, 0, Vec::new());
        while let Child::SameGraph(index) = at
            && let Some(node) = self.nodes.get(*index as usize)
            && (node.kind.has_id() || self.is_nameless(*index))
            && !node.kind.is_sent_as_indirection()
        {
            // The encoder always writes an indirection for a named type that occurs inside itself,
            // so this type adds no level.
            if boxes.contains(index) || (node.kind.has_id() && self.open.contains(index)) {
                break;
            }
            levels += 1;
            if node.kind == TypeCodeKind::ValueBox {
                boxes.push(*index);
            }
            if let Some(content) = &node.content {
                at = content;
                continue;
            }
            if node.kind.has_id() {
                break;
            }
            // The content is missing, because this type is still being read.
            let inside = self.open.iter().skip_while(|open| *open != index).skip(1);
            let nameless = inside.clone().take_while(|open| self.is_nameless(**open)).count();
            if nameless == inside.count() {
                return Err(CdrError::BadIndirection);
            }
            levels += u32::try_from(nameless).unwrap_or(u32::MAX);
            break;
        }
        if levels > d.levels_left() {
            return Err(CdrError::NestingTooDeep);
        }
        // The first level of a copy is hardly larger than an indirection, so it does not count.
        self.copied = self.copied.saturating_add(levels.saturating_sub(1));
        if self.copied > MAX_COPIED_LEVELS { Err(CdrError::LimitExceeded) } else { Ok(()) }
    }

    fn is_nameless(&self, index: u32) -> bool {
        self.nodes
            .get(index as usize)
            .is_some_and(|node| matches!(node.kind, TypeCodeKind::Sequence | TypeCodeKind::Array))
    }

    fn add(&mut self, at: usize, node: Node, d: &mut Decoder<'_>) -> Result<Child, CdrError> {
        // A growing vector has a capacity of up to twice its length, so the charge is for two
        // elements.
        d.charge_elements::<[(Node, usize, Child); 2]>(1)?;
        let child = Child::SameGraph(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        self.seen.push((at, child.clone()));
        Ok(child)
    }

    fn parameters(&mut self, kind: TypeCodeKind, d: &mut Decoder<'_>, end: usize) -> Result<Node, CdrError> {
        let mut node = Node::new(kind);
        if kind.has_id() {
            node.id = d.read_latin1_string()?.into();
            node.name = d.read_latin1_string()?.into();
        }
        match kind {
            TypeCodeKind::Value | TypeCodeKind::Event => {
                node.modifier = d.read_i16()?;
                let base = self.read(d, end)?;
                node.content = match self.kind_of(&base) {
                    Some(TypeCodeKind::Null) => None,
                    Some(TypeCodeKind::Value | TypeCodeKind::Event) => Some(base),
                    _ => return Err(CdrError::IllegalTypeCodeMember),
                };
            }
            TypeCodeKind::Sequence | TypeCodeKind::Array => {
                node.content = Some(self.part(d, end)?);
                node.length = d.read_u32()?;
                if kind == TypeCodeKind::Array && node.length == 0 {
                    return Err(CdrError::BadTypeCode);
                }
            }
            TypeCodeKind::Alias | TypeCodeKind::ValueBox => node.content = Some(self.part(d, end)?),
            TypeCodeKind::Union => return self.union(node, d, end),
            _ => {}
        }
        match kind {
            TypeCodeKind::Struct | TypeCodeKind::Except | TypeCodeKind::Value | TypeCodeKind::Event => {
                let state = !matches!(kind, TypeCodeKind::Struct | TypeCodeKind::Except);
                for _ in 0..members(&mut node, MIN_MEMBER_SIZE, d)? {
                    let name = d.read_latin1_string()?.into();
                    let ty = self.part(d, end)?;
                    let visibility = if state { d.read_i16()? } else { 0 };
                    node.members.push(NodeMember { name, ty, label: 0, visibility });
                }
            }
            TypeCodeKind::Enum => {
                for _ in 0..members(&mut node, MIN_ENUMERATOR_SIZE, d)? {
                    let name = d.read_latin1_string()?.into();
                    let ty = Child::OtherGraph(TypeCode::NULL);
                    node.members.push(NodeMember { name, ty, label: 0, visibility: 0 });
                }
            }
            _ => {}
        }
        Ok(node)
    }

    fn union(&mut self, mut node: Node, d: &mut Decoder<'_>, end: usize) -> Result<Node, CdrError> {
        let discriminator = self.read(d, end)?;
        let kind = self.kind_of(&discriminator).filter(|kind| kind.is_discriminator()).ok_or(CdrError::BadTypeCode)?;
        node.content = Some(discriminator);
        // omniORB sends -2 if all values have labels. Other ORBs send -1, as the specification
        // says.
        node.default = d.read_i32()?.max(-1);
        let count = members(&mut node, MIN_MEMBER_SIZE, d)?;
        if usize::try_from(node.default).is_ok_and(|default| default >= count) {
            return Err(CdrError::BadTypeCode);
        }
        for index in 0..count {
            let label = read_label(kind, d)?;
            let name = d.read_latin1_string()?.into();
            let ty = self.part(d, end)?;
            let label = if usize::try_from(node.default) == Ok(index) { 0 } else { label };
            node.members.push(NodeMember { name, ty, label, visibility: 0 });
        }
        Ok(node)
    }

    fn part(&mut self, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let part = self.read(d, end)?;
        let kind = match &part {
            Child::SameGraph(index) => self.nodes.get(*index as usize).map(|node| node.kind),
            Child::OtherGraph(type_code) => Some(type_code.kind()),
            Child::Placeholder(_) => None,
        };
        match kind {
            Some(kind) if kind.can_be_member() => Ok(part),
            _ => Err(CdrError::IllegalTypeCodeMember),
        }
    }

    /// Returns the kind of a type without its aliases, if the aliases were read completely.
    fn kind_of(&self, child: &Child) -> Option<TypeCodeKind> {
        let mut at = child;
        for _ in 0..super::graph::MAX_ALIASES {
            match at {
                Child::OtherGraph(type_code) => return Some(type_code.kind()),
                Child::Placeholder(_) => return None,
                Child::SameGraph(index) => match self.nodes.get(*index as usize)? {
                    Node { kind: TypeCodeKind::Alias, content, .. } => at = content.as_ref()?,
                    node => return Some(node.kind),
                },
            }
        }
        None
    }
}

fn members(node: &mut Node, least: usize, d: &mut Decoder<'_>) -> Result<usize, CdrError> {
    let count = d.read_len(least)?;
    d.charge_elements::<NodeMember>(count)?;
    node.members.try_reserve_exact(count).map_err(|_| CdrError::MemoryBudgetExceeded)?;
    Ok(count)
}

/// Minimum size in bytes of a member of a structure, union or value: the length of a name, which
/// may be empty without a NUL, and a kind.
const MIN_MEMBER_SIZE: usize = 8;
const MIN_ENUMERATOR_SIZE: usize = 4;
