//! The representation of TypeCodes: statics, or a graph of nodes that was decoded or created.

use std::sync::Arc;

use super::description::{self, StaticTypeCode};
use super::{TypeCode, TypeCodeKind};
use crate::cdr::CdrError;

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) incomplete: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(super) kind: TypeCodeKind,
    pub(super) id: Box<str>,
    pub(super) name: Box<str>,
    /// The bound of a string or sequence, the length of an array, or the digits of a fixed.
    pub(super) length: u32,
    pub(super) scale: i16,
    pub(super) modifier: i16,
    pub(super) default: i32,
    /// The element, aliased or boxed type, the discriminator, or the concrete base.
    pub(super) content: Option<Child>,
    pub(super) members: Vec<NodeMember>,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeMember {
    pub(super) name: Box<str>,
    pub(super) ty: Child,
    pub(super) label: i128,
    pub(super) visibility: i16,
}

#[derive(Clone, Debug)]
pub(crate) enum Child {
    SameGraph(u32),
    OtherGraph(TypeCode),
    /// A placeholder for the type with this repository id.
    Placeholder(Box<str>),
}

impl Node {
    pub(super) fn new(kind: TypeCodeKind) -> Node {
        Node {
            kind,
            id: Box::default(),
            name: Box::default(),
            length: 0,
            scale: 0,
            modifier: 0,
            default: -1,
            content: None,
            members: Vec::new(),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum View<'t> {
    Static(&'static StaticTypeCode),
    Graph(&'t Arc<Graph>, &'t Node, u32),
    Missing,
}

#[derive(Clone, Copy)]
pub(crate) struct MemberView<'t> {
    pub(crate) name: &'t str,
    pub(crate) ty: View<'t>,
    pub(crate) label: i128,
    pub(crate) visibility: i16,
}

impl<'t> View<'t> {
    #[inline]
    pub(crate) fn kind(self) -> TypeCodeKind {
        match self {
            View::Static(description) => description.kind,
            View::Graph(_, node, _) => node.kind,
            View::Missing => TypeCodeKind::Null,
        }
    }

    pub(crate) fn id(self) -> &'t str {
        match self {
            View::Static(description) => description.id,
            View::Graph(_, node, _) => &node.id,
            View::Missing => "",
        }
    }

    pub(crate) fn name(self) -> &'t str {
        match self {
            View::Static(description) => description.name,
            View::Graph(_, node, _) => &node.name,
            View::Missing => "",
        }
    }

    pub(crate) fn length(self) -> u32 {
        match self {
            View::Static(description) => description.length,
            View::Graph(_, node, _) => node.length,
            View::Missing => 0,
        }
    }

    pub(crate) fn scale(self) -> i16 {
        match self {
            View::Static(description) => description.scale,
            View::Graph(_, node, _) => node.scale,
            View::Missing => 0,
        }
    }

    pub(crate) fn modifier(self) -> i16 {
        match self {
            View::Static(description) => description.modifier,
            View::Graph(_, node, _) => node.modifier,
            View::Missing => 0,
        }
    }

    pub(crate) fn default(self) -> i32 {
        match self {
            View::Static(description) => description.default,
            View::Graph(_, node, _) => node.default,
            View::Missing => -1,
        }
    }

    pub(crate) fn content(self) -> Option<View<'t>> {
        match self {
            View::Static(description) => description.content.map(View::Static),
            View::Graph(graph, node, _) => node.content.as_ref().map(|child| View::child(graph, child)),
            View::Missing => None,
        }
    }

    #[inline]
    pub(crate) fn member_count(self) -> usize {
        match self {
            View::Static(description) => description.members.len(),
            View::Graph(_, node, _) => node.members.len(),
            View::Missing => 0,
        }
    }

    #[inline]
    pub(crate) fn member(self, index: usize) -> Option<MemberView<'t>> {
        match self {
            View::Static(description) => description.members.get(index).map(|member| MemberView {
                name: member.name,
                ty: View::Static(member.ty),
                label: member.label,
                visibility: member.visibility,
            }),
            View::Graph(graph, node, _) => node.members.get(index).map(|member| MemberView {
                name: &member.name,
                ty: View::child(graph, &member.ty),
                label: member.label,
                visibility: member.visibility,
            }),
            View::Missing => None,
        }
    }

    pub(crate) fn members(self) -> impl Iterator<Item = MemberView<'t>> {
        (0..self.member_count()).filter_map(move |index| self.member(index))
    }

    /// Returns this value type and then the concrete value types from which it inherits.
    pub(crate) fn bases(self) -> Result<Vec<View<'t>>, CdrError> {
        let mut found = vec![self];
        let mut at = self;
        while let Some(base) = at.content().map(View::unaliased).filter(|base| base.kind() != TypeCodeKind::Null) {
            if found.len() > MAX_ALIASES || !matches!(base.kind(), TypeCodeKind::Value | TypeCodeKind::Event) {
                return Err(CdrError::BadTypeCode);
            }
            found.push(base);
            at = base;
        }
        Ok(found)
    }

    /// Returns true if a value of this type can be used as a value of type `expected`, and this
    /// type has state.
    pub(crate) fn is_substitutable_for(self, expected: View<'_>) -> bool {
        if !matches!(self.kind(), TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::Event)
            || self.modifier() == ABSTRACT
        {
            return false;
        }
        // A TypeCode does not name the abstract types that its type inherits from or supports, so
        // any value with state is accepted for an abstract type.
        let is_value = matches!(expected.kind(), TypeCodeKind::Value | TypeCodeKind::Event);
        let open = is_value && (expected.modifier() == ABSTRACT || expected.id() == description::VALUE_BASE_ID);
        let inherits = || self.bases().is_ok_and(|bases| bases.iter().any(|base| base.id() == expected.id()));
        expected.kind() == TypeCodeKind::AbstractInterface
            || open
            || (is_value && self.kind() != TypeCodeKind::ValueBox && inherits())
            || super::compare::equivalent(self, expected)
    }

    fn child(graph: &'t Arc<Graph>, child: &'t Child) -> View<'t> {
        match child {
            Child::SameGraph(index) => match graph.nodes.get(*index as usize) {
                Some(node) => View::Graph(graph, node, *index),
                None => View::Missing,
            },
            Child::OtherGraph(other) => other.view(),
            Child::Placeholder(_) => View::Missing,
        }
    }

    /// Returns a key that distinguishes types while they exist.
    pub(crate) fn key(self) -> usize {
        match self {
            View::Static(description) => std::ptr::from_ref(description).addr(),
            View::Graph(_, node, _) => std::ptr::from_ref(node).addr(),
            View::Missing => 0,
        }
    }

    /// Returns the type behind all aliases; a cycle of aliases, which only a hostile message has,
    /// gives a missing type.
    #[inline]
    pub(crate) fn unaliased(self) -> View<'t> {
        let mut at = self;
        for _ in 0..MAX_ALIASES {
            match (at.kind(), at.content()) {
                (TypeCodeKind::Alias, Some(content)) => at = content,
                (TypeCodeKind::Alias, None) => return View::Missing,
                _ => return at,
            }
        }
        View::Missing
    }

    pub(crate) fn to_type_code(self) -> TypeCode {
        match self {
            View::Static(description) => TypeCode::from_description(description),
            View::Graph(graph, _, index) => TypeCode(super::TypeCodeRepr::Graph(Arc::clone(graph), index)),
            View::Missing => TypeCode::from_description(description::NULL),
        }
    }
}

pub(crate) const ABSTRACT: i16 = 2;

pub(super) const MAX_ALIASES: usize = 128;
