//! Octets to TypeCodes.

use std::sync::Arc;

use super::encode::read_label;
use super::graph::{Child, Graph, Node, NodeMember};
use super::{INDIRECTION, Kind, Repr, TypeCode, description};
use crate::cdr::{CdrError, Decoder};

/// Reads a TypeCode. Its nesting is bounded by the limits; everything else takes memory in proportion to the octets.
pub(super) fn read(d: &mut Decoder<'_>) -> Result<TypeCode, CdrError> {
    let number = d.read_u32()?;
    if let Some(kind) = Kind::from_number(number)
        && kind.is_basic()
    {
        return Ok(TypeCode::described(description::of_kind(kind)));
    }
    // Positions are counted from the kind of the outermost TypeCode.
    let end = d.remaining() + KIND;
    let mut reader = Reader { nodes: Vec::new(), seen: Vec::new(), open: Vec::new(), copied: 0 };
    match reader.of_kind(number, d, end)? {
        Child::Here(index) => {
            Ok(TypeCode(Repr::Graph(Arc::new(Graph { nodes: reader.nodes, incomplete: false }), index)))
        }
        Child::There(type_code) => Ok(type_code),
        Child::Announced(_) => Err(CdrError::BadIndirection),
    }
}

/// Octets of a kind.
const KIND: usize = 4;

struct Reader {
    nodes: Vec<Node>,
    /// Where the kinds of types stand that were read or are being read, in rising order.
    seen: Vec<(usize, Child)>,
    /// Types that are being read, the outermost first.
    open: Vec<u32>,
    /// Levels of types without a name that are written more often than they were read.
    copied: u32,
}

/// Levels that may be copied when a type is written anew: each takes some 16 octets.
const MOST_COPIED: u32 = 4096;

impl Reader {
    /// Reads a type; `end` is the position of the end of what `d` reads.
    fn read(&mut self, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let number = d.read_u32()?;
        self.of_kind(number, d, end)
    }

    fn of_kind(&mut self, number: u32, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let behind = end - d.remaining();
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
        let kind = Kind::from_number(number).ok_or(CdrError::BadType)?;
        let at = behind - KIND;
        let known = match kind {
            _ if kind.is_basic() => Some(description::of_kind(kind)),
            Kind::String | Kind::WString => match (d.read_u32()?, kind) {
                (0, Kind::String) => Some(description::STRING),
                (0, _) => Some(description::WSTRING),
                (length, _) => return Ok(self.add(at, Node { length, ..Node::new(kind) })),
            },
            Kind::Fixed => {
                let (digits, scale) = (d.read_u16()?, d.read_i16()?);
                if !(1..=31).contains(&digits) {
                    return Err(CdrError::BadType);
                }
                return Ok(self.add(at, Node { length: u32::from(digits), scale, ..Node::new(kind) }));
            }
            _ => None,
        };
        if let Some(known) = known {
            let child = Child::There(TypeCode::described(known));
            self.seen.push((at, child.clone()));
            return Ok(child);
        }
        let child = self.add(at, Node::new(kind));
        let Child::Here(index) = child else { return Ok(child) };
        self.open.push(index);
        let node = d.nested(|d| {
            let mut inner = d.read_encapsulation()?;
            self.parameters(kind, &mut inner, end - d.remaining())
        })?;
        self.open.pop();
        if let Some(place) = self.nodes.get_mut(index as usize) {
            *place = node;
        }
        Ok(child)
    }

    /// Sequences and arrays have no name: where an indirection leads to one, it is written anew with all that it consists of down to the
    /// next name. That has to end, and must not nest deeper than what may be read.
    fn count_copy(&mut self, child: &Child, d: &Decoder<'_>) -> Result<(), CdrError> {
        let (mut at, mut levels) = (child, 0);
        while let Child::Here(index) = at
            && self.is_nameless(*index)
        {
            levels += 1;
            if let Some(content) = self.nodes.get(*index as usize).and_then(|node| node.content.as_ref()) {
                at = content;
                continue;
            }
            // It is being read.
            let inside = self.open.iter().skip_while(|open| *open != index).skip(1);
            let nameless = inside.clone().take_while(|open| self.is_nameless(**open)).count();
            if nameless == inside.count() {
                return Err(CdrError::BadIndirection);
            }
            levels += u32::try_from(nameless).unwrap_or(u32::MAX);
            break;
        }
        if levels > d.levels_left() {
            return Err(CdrError::TooDeep);
        }
        // What is copied takes less than the indirection, or little more, but for long chains.
        self.copied = self.copied.saturating_add(levels.saturating_sub(1));
        if self.copied > MOST_COPIED { Err(CdrError::OverLimit) } else { Ok(()) }
    }

    fn is_nameless(&self, index: u32) -> bool {
        self.nodes.get(index as usize).is_some_and(|node| matches!(node.kind, Kind::Sequence | Kind::Array))
    }

    fn add(&mut self, at: usize, node: Node) -> Child {
        let child = Child::Here(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        self.seen.push((at, child.clone()));
        child
    }

    fn parameters(&mut self, kind: Kind, d: &mut Decoder<'_>, end: usize) -> Result<Node, CdrError> {
        let mut node = Node::new(kind);
        if kind.has_id() {
            node.id = d.read_latin1_string()?.into();
            node.name = d.read_latin1_string()?.into();
        }
        match kind {
            Kind::Value | Kind::Event => {
                node.modifier = d.read_i16()?;
                let base = self.read(d, end)?;
                node.content = match self.kind_of(&base) {
                    Some(Kind::Null) => None,
                    Some(Kind::Value | Kind::Event) => Some(base),
                    _ => return Err(CdrError::IllegitimateMember),
                };
            }
            Kind::Sequence | Kind::Array => {
                node.content = Some(self.part(d, end)?);
                node.length = d.read_u32()?;
                if kind == Kind::Array && node.length == 0 {
                    return Err(CdrError::BadType);
                }
            }
            Kind::Alias | Kind::ValueBox => node.content = Some(self.part(d, end)?),
            Kind::Union => return self.union(node, d, end),
            _ => {}
        }
        match kind {
            Kind::Struct | Kind::Except | Kind::Value | Kind::Event => {
                let state = !matches!(kind, Kind::Struct | Kind::Except);
                for _ in 0..d.read_len(LEAST_MEMBER)? {
                    let name = d.read_latin1_string()?.into();
                    let ty = self.part(d, end)?;
                    let visibility = if state { d.read_i16()? } else { 0 };
                    node.members.push(NodeMember { name, ty, label: 0, visibility });
                }
            }
            Kind::Enum => {
                for _ in 0..d.read_len(LEAST_ENUMERATOR)? {
                    let name = d.read_latin1_string()?.into();
                    let ty = Child::There(TypeCode::NULL);
                    node.members.push(NodeMember { name, ty, label: 0, visibility: 0 });
                }
            }
            _ => {}
        }
        Ok(node)
    }

    fn union(&mut self, mut node: Node, d: &mut Decoder<'_>, end: usize) -> Result<Node, CdrError> {
        let discriminator = self.read(d, end)?;
        let kind = self.kind_of(&discriminator).filter(|kind| kind.is_discriminator()).ok_or(CdrError::BadType)?;
        node.content = Some(discriminator);
        // omniORB says -2 where all values have labels.
        node.default = d.read_i32()?.max(-1);
        let count = d.read_len(LEAST_MEMBER)?;
        if usize::try_from(node.default).is_ok_and(|default| default >= count) {
            return Err(CdrError::BadType);
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

    /// Reads the type of a member or element.
    fn part(&mut self, d: &mut Decoder<'_>, end: usize) -> Result<Child, CdrError> {
        let part = self.read(d, end)?;
        let kind = match &part {
            Child::Here(index) => self.nodes.get(*index as usize).map(|node| node.kind),
            Child::There(type_code) => Some(type_code.kind()),
            Child::Announced(_) => None,
        };
        match kind {
            Some(kind) if kind.is_legitimate() => Ok(part),
            _ => Err(CdrError::IllegitimateMember),
        }
    }

    /// The kind behind aliases that were read whole.
    fn kind_of(&self, child: &Child) -> Option<Kind> {
        let mut at = child;
        for _ in 0..super::graph::MOST_ALIASES {
            match at {
                Child::There(type_code) => return Some(type_code.kind()),
                Child::Announced(_) => return None,
                Child::Here(index) => match self.nodes.get(*index as usize)? {
                    Node { kind: Kind::Alias, content, .. } => at = content.as_ref()?,
                    node => return Some(node.kind),
                },
            }
        }
        None
    }
}

/// Octets that a member of a structure, union or value has at least: the length of a name, its NUL and a kind.
const LEAST_MEMBER: usize = 8;
/// The same of an enumerator.
const LEAST_ENUMERATOR: usize = 4;
