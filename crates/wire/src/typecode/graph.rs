//! Where the parts of a TypeCode are: in statics, or in a graph that came from a message or was put together.

use std::sync::Arc;

use super::description::{self, Description};
use super::{Kind, TypeCode};
use crate::cdr::CdrError;

/// Types that refer to each other, in circles too. It owns no part twice and is never changed.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Whether a part is a [`TypeCode::recursive`] whose type is not there yet.
    pub(super) incomplete: bool,
}

/// One type of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(super) kind: Kind,
    pub(super) id: Box<str>,
    pub(super) name: Box<str>,
    /// Bound of a string or sequence, length of an array, digits of a fixed.
    pub(super) length: u32,
    pub(super) scale: i16,
    /// Of a value type.
    pub(super) modifier: i16,
    /// Index of the default arm of a union, -1 for none.
    pub(super) default: i32,
    /// Element, aliased or boxed type; discriminator; concrete base.
    pub(super) content: Option<Child>,
    pub(super) members: Vec<NodeMember>,
}

/// One member of a type of a graph.
#[derive(Clone, Debug)]
pub(crate) struct NodeMember {
    pub(super) name: Box<str>,
    pub(super) ty: Child,
    pub(super) label: i128,
    pub(super) visibility: i16,
}

/// A type that another one refers to.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    /// In the same graph.
    Here(u32),
    /// Anywhere else.
    There(TypeCode),
    /// A type that will have this repository id.
    Announced(Box<str>),
}

impl Node {
    pub(super) fn new(kind: Kind) -> Node {
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

/// One type, wherever it is.
#[derive(Clone, Copy)]
pub(crate) enum View<'t> {
    Static(&'static Description),
    Graph(&'t Arc<Graph>, &'t Node, u32),
    /// Announced and not there.
    Missing,
}

/// One member, wherever it is.
#[derive(Clone, Copy)]
pub(crate) struct MemberView<'t> {
    pub(crate) name: &'t str,
    pub(crate) ty: View<'t>,
    pub(crate) label: i128,
    pub(crate) visibility: i16,
}

impl<'t> View<'t> {
    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self {
            View::Static(description) => description.kind,
            View::Graph(_, node, _) => node.kind,
            View::Missing => Kind::Null,
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

    /// Element, aliased or boxed type; discriminator; concrete base.
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

    /// A value type and the concrete ones that it inherits from, itself first.
    pub(crate) fn bases(self) -> Result<Vec<View<'t>>, CdrError> {
        let mut found = vec![self];
        let mut at = self;
        while let Some(base) = at.content().map(View::resolved).filter(|base| base.kind() != Kind::Null) {
            if found.len() > MOST_ALIASES || !matches!(base.kind(), Kind::Value | Kind::Event) {
                return Err(CdrError::BadType);
            }
            found.push(base);
            at = base;
        }
        Ok(found)
    }

    /// Whether a value of this type with state can be where one of the value type `expected` is.
    pub(crate) fn can_stand_for(self, expected: View<'_>) -> bool {
        if !matches!(self.kind(), Kind::Value | Kind::ValueBox | Kind::Event) || self.modifier() == ABSTRACT {
            return false;
        }
        // Which abstract types a type inherits from, or supports, its TypeCode does not tell.
        let is_value = matches!(expected.kind(), Kind::Value | Kind::Event);
        let open = is_value && (expected.modifier() == ABSTRACT || expected.id() == description::VALUE_BASE_ID);
        let inherits = || self.bases().is_ok_and(|bases| bases.iter().any(|base| base.id() == expected.id()));
        expected.kind() == Kind::AbstractInterface
            || open
            || (is_value && self.kind() != Kind::ValueBox && inherits())
            || super::compare::equivalent(self, expected)
    }

    fn child(graph: &'t Arc<Graph>, child: &'t Child) -> View<'t> {
        match child {
            Child::Here(index) => match graph.nodes.get(*index as usize) {
                Some(node) => View::Graph(graph, node, *index),
                None => View::Missing,
            },
            Child::There(other) => other.view(),
            Child::Announced(_) => View::Missing,
        }
    }

    /// What tells types apart while they live.
    pub(crate) fn key(self) -> usize {
        match self {
            View::Static(description) => std::ptr::from_ref(description).addr(),
            View::Graph(_, node, _) => std::ptr::from_ref(node).addr(),
            View::Missing => 0,
        }
    }

    /// The type behind all aliases. A circle of aliases, which only a hostile message has, is no type.
    #[inline]
    pub(crate) fn resolved(self) -> View<'t> {
        let mut at = self;
        for _ in 0..MOST_ALIASES {
            match (at.kind(), at.content()) {
                (Kind::Alias, Some(content)) => at = content,
                (Kind::Alias, None) => return View::Missing,
                _ => return at,
            }
        }
        View::Missing
    }

    /// The type as one that can be kept.
    pub(crate) fn to_type_code(self) -> TypeCode {
        match self {
            View::Static(description) => TypeCode::described(description),
            View::Graph(graph, _, index) => TypeCode(super::Repr::Graph(Arc::clone(graph), index)),
            View::Missing => TypeCode::described(description::NULL),
        }
    }
}

/// Modifier of abstract value types.
pub(crate) const ABSTRACT: i16 = 2;

/// Aliases of aliases that are followed.
pub(super) const MOST_ALIASES: usize = 128;
