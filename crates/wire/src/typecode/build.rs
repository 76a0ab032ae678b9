//! Types created at run time: the `create_..._tc` operations of the ORB (CORBA 3.0.3 section
//! 4.11.3).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::graph::{Child, Graph, Node, NodeMember};
use super::{TypeCode, TypeCodeKind, TypeCodeRepr, View};
use crate::exception::{SystemExceptionKind, minor};

/// The reason why a type cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypeCodeError {
    /// The name of the type is not an identifier.
    InvalidName,
    /// The repository id has no format prefix, such as `IDL:`.
    InvalidRepositoryId,
    /// The name of a member is not an identifier, or is also the name of another member.
    InvalidMemberName,
    /// A member, an element or a base has a type that is not permitted there, such as void.
    IllegitimateMember,
    /// Two arms of a union have the same label, or both are default arms.
    DuplicateLabel,
    /// The type of the discriminator does not have the value of a label.
    LabelOutOfRange,
    /// The discriminator is not an integer, octet, character, boolean or enumeration.
    IllegitimateDiscriminator,
    /// A fixed has no digits, more than 31, or a scale above its digits.
    DigitsOutOfRange,
    /// An array has no elements.
    EmptyArray,
}

impl TypeCodeError {
    /// Returns the system exception that reports this error.
    #[must_use]
    pub fn kind(self) -> SystemExceptionKind {
        match self {
            TypeCodeError::IllegitimateMember => SystemExceptionKind::BadTypecode,
            _ => SystemExceptionKind::BadParam,
        }
    }

    /// Returns the minor code that reports this error.
    #[must_use]
    pub fn minor(self) -> u32 {
        match self {
            TypeCodeError::InvalidName => minor::bad_param::TYPE_CODE_NAME,
            TypeCodeError::InvalidRepositoryId => minor::bad_param::TYPE_CODE_REPOSITORY_ID,
            TypeCodeError::InvalidMemberName => minor::bad_param::TYPE_CODE_MEMBER_NAME,
            TypeCodeError::IllegitimateMember => minor::bad_typecode::ILLEGITIMATE_MEMBER,
            TypeCodeError::DuplicateLabel => minor::bad_param::DUPLICATE_LABEL,
            TypeCodeError::LabelOutOfRange => minor::bad_param::LABEL_TYPE,
            TypeCodeError::IllegitimateDiscriminator => minor::bad_param::DISCRIMINATOR_TYPE,
            TypeCodeError::DigitsOutOfRange | TypeCodeError::EmptyArray => 0,
        }
    }

    fn text(self) -> &'static str {
        match self {
            TypeCodeError::InvalidName => "the name of a type is not an identifier",
            TypeCodeError::InvalidRepositoryId => "a repository id has no format prefix, such as IDL:",
            TypeCodeError::InvalidMemberName => "the name of a member is not an identifier, or occurs twice",
            TypeCodeError::IllegitimateMember => "a member has a type that members cannot have",
            TypeCodeError::DuplicateLabel => "a label occurs twice",
            TypeCodeError::LabelOutOfRange => "a label does not fit the discriminator",
            TypeCodeError::IllegitimateDiscriminator => "this type cannot be a discriminator",
            TypeCodeError::DigitsOutOfRange => "a fixed has 1 to 31 digits, and its scale does not exceed them",
            TypeCodeError::EmptyArray => "an array has at least one element",
        }
    }
}

impl fmt::Display for TypeCodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for TypeCodeError {}

/// An arm of a new union type. An arm with several labels needs one `UnionMember` for each label.
#[derive(Clone, Debug)]
pub struct UnionMember {
    /// The label: a number, the code of a character, the number of an enumerator, or 0 (FALSE) or 1
    /// (TRUE). `None` for the default arm.
    pub label: Option<i128>,
    /// The name of the arm.
    pub name: String,
    /// The type of the arm.
    pub ty: TypeCode,
}

/// A state member of a new value type.
#[derive(Clone, Debug)]
pub struct ValueMember {
    /// The name of the member.
    pub name: String,
    /// The type of the member.
    pub ty: TypeCode,
    /// True if the member is public.
    pub is_public: bool,
}

impl TypeCode {
    /// Creates `string<bound>`; 0 is unbounded.
    #[must_use]
    pub fn string(bound: u32) -> TypeCode {
        Self::simple(Node { length: bound, ..Node::new(TypeCodeKind::String) })
    }

    /// Creates `wstring<bound>`; 0 is unbounded.
    #[must_use]
    pub fn wstring(bound: u32) -> TypeCode {
        Self::simple(Node { length: bound, ..Node::new(TypeCodeKind::WString) })
    }

    /// Creates `fixed<digits, scale>`.
    ///
    /// # Errors
    /// [`TypeCodeError::DigitsOutOfRange`].
    pub fn fixed(digits: u16, scale: i16) -> Result<TypeCode, TypeCodeError> {
        if !(1..=31).contains(&digits) || scale > i16::try_from(digits).unwrap_or(0) {
            return Err(TypeCodeError::DigitsOutOfRange);
        }
        Ok(Self::simple(Node { length: u32::from(digits), scale, ..Node::new(TypeCodeKind::Fixed) }))
    }

    /// Creates `sequence<element, bound>`; 0 is unbounded.
    ///
    /// # Errors
    /// [`TypeCodeError::IllegitimateMember`] if an element cannot have the type `element`, such as
    /// void.
    pub fn sequence(element: TypeCode, bound: u32) -> Result<TypeCode, TypeCodeError> {
        let content = Some(child(element)?);
        Ok(finish(Node { length: bound, content, ..Node::new(TypeCodeKind::Sequence) }))
    }

    /// Creates an array of one dimension.
    ///
    /// # Errors
    /// [`TypeCodeError::IllegitimateMember`] if an element cannot have the type `element`;
    /// [`TypeCodeError::EmptyArray`] for a length of 0, which IDL does not have.
    pub fn array(element: TypeCode, length: u32) -> Result<TypeCode, TypeCodeError> {
        if length == 0 {
            return Err(TypeCodeError::EmptyArray);
        }
        let content = Some(child(element)?);
        Ok(finish(Node { length, content, ..Node::new(TypeCodeKind::Array) }))
    }

    /// Creates an alias of a type.
    ///
    /// # Errors
    /// [`TypeCodeError::InvalidName`]; [`TypeCodeError::InvalidRepositoryId`];
    /// [`TypeCodeError::IllegitimateMember`] if `of` is not the type of a value, such as void.
    pub fn alias(id: &str, name: &str, of: TypeCode) -> Result<TypeCode, TypeCodeError> {
        let content = Some(child(of)?);
        Ok(finish(Node { content, ..named(TypeCodeKind::Alias, id, name)? }))
    }

    /// Creates a structure.
    ///
    /// # Errors
    /// [`TypeCodeError::InvalidName`]; [`TypeCodeError::InvalidRepositoryId`];
    /// [`TypeCodeError::InvalidMemberName`]; [`TypeCodeError::IllegitimateMember`] if a member
    /// cannot have its type, such as void.
    pub fn structure<N: AsRef<str>>(
        id: &str,
        name: &str,
        members: impl IntoIterator<Item = (N, TypeCode)>,
    ) -> Result<TypeCode, TypeCodeError> {
        Ok(finish(Node { members: plain_members(members)?, ..named(TypeCodeKind::Struct, id, name)? }))
    }

    /// Creates a map of IDL 4: a sequence of pairs without id and name; `bound` 0 is unbounded.
    ///
    /// # Errors
    /// [`TypeCodeError::IllegitimateMember`] if a key or a value cannot have its type, such as
    /// void.
    pub fn map(key: TypeCode, value: TypeCode, bound: u32) -> Result<TypeCode, TypeCodeError> {
        let members = plain_members([("key", key), ("value", value)])?;
        TypeCode::sequence(finish(Node { members, ..Node::new(TypeCodeKind::Struct) }), bound)
    }

    /// Creates an exception.
    ///
    /// # Errors
    /// The errors of [`structure`](TypeCode::structure).
    pub fn exception<N: AsRef<str>>(
        id: &str,
        name: &str,
        members: impl IntoIterator<Item = (N, TypeCode)>,
    ) -> Result<TypeCode, TypeCodeError> {
        Ok(finish(Node { members: plain_members(members)?, ..named(TypeCodeKind::Except, id, name)? }))
    }

    /// Creates an enumeration.
    ///
    /// # Errors
    /// [`TypeCodeError::InvalidName`], [`TypeCodeError::InvalidRepositoryId`],
    /// [`TypeCodeError::InvalidMemberName`].
    pub fn enumeration<N: AsRef<str>>(
        id: &str,
        name: &str,
        enumerators: impl IntoIterator<Item = N>,
    ) -> Result<TypeCode, TypeCodeError> {
        let mut names = MemberNames::default();
        let members = enumerators.into_iter().map(|name| {
            names.add(name.as_ref())?;
            Ok(NodeMember {
                name: name.as_ref().into(),
                ty: Child::OtherGraph(TypeCode::NULL),
                label: 0,
                visibility: 0,
            })
        });
        let members = members.collect::<Result<_, TypeCodeError>>()?;
        Ok(finish(Node { members, ..named(TypeCodeKind::Enum, id, name)? }))
    }

    /// Creates a union.
    ///
    /// # Errors
    /// Every [`TypeCodeError`] except `DigitsOutOfRange` and `EmptyArray`.
    pub fn union(
        id: &str,
        name: &str,
        discriminator: TypeCode,
        arms: impl IntoIterator<Item = UnionMember>,
    ) -> Result<TypeCode, TypeCodeError> {
        let resolved = discriminator.unaliased();
        if !resolved.kind().is_discriminator() {
            return Err(TypeCodeError::IllegitimateDiscriminator);
        }
        let (mut names, mut labels, mut default) = (HashMap::new(), HashSet::new(), -1);
        let mut members: Vec<NodeMember> = Vec::new();
        for arm in arms {
            if !is_identifier(&arm.name) {
                return Err(TypeCodeError::InvalidMemberName);
            }
            let before = names.insert(arm.name.to_ascii_lowercase(), arm.ty.clone());
            if before.is_some_and(|before| before != arm.ty) {
                return Err(TypeCodeError::InvalidMemberName);
            }
            match arm.label {
                Some(label) if !label_fits(resolved.view(), label) => return Err(TypeCodeError::LabelOutOfRange),
                Some(label) if !labels.insert(label) => return Err(TypeCodeError::DuplicateLabel),
                Some(_) => {}
                None if default >= 0 => return Err(TypeCodeError::DuplicateLabel),
                None => default = i32::try_from(members.len()).map_err(|_| TypeCodeError::IllegitimateMember)?,
            }
            let label = arm.label.unwrap_or(0);
            members.push(NodeMember { name: arm.name.into(), ty: child(arm.ty)?, label, visibility: 0 });
        }
        let content = Some(Child::OtherGraph(discriminator));
        Ok(finish(Node { content, default, members, ..named(TypeCodeKind::Union, id, name)? }))
    }

    /// Creates an interface type: [`TypeCodeKind::ObjRef`], [`TypeCodeKind::AbstractInterface`],
    /// [`TypeCodeKind::LocalInterface`], [`TypeCodeKind::Component`] or [`TypeCodeKind::Home`]; or
    /// a [`TypeCodeKind::Native`].
    ///
    /// # Errors
    /// [`TypeCodeError::InvalidName`], [`TypeCodeError::InvalidRepositoryId`];
    /// [`TypeCodeError::IllegitimateMember`] for another kind.
    pub fn interface(kind: TypeCodeKind, id: &str, name: &str) -> Result<TypeCode, TypeCodeError> {
        if kind != TypeCodeKind::Native && !kind.is_interface() {
            return Err(TypeCodeError::IllegitimateMember);
        }
        named(kind, id, name).map(finish)
    }

    /// Creates a value type; `modifier` is 0 none, 1 custom, 2 abstract, 3 truncatable.
    ///
    /// # Errors
    /// The errors of [`structure`](TypeCode::structure).
    pub fn value(
        id: &str,
        name: &str,
        modifier: i16,
        base: Option<TypeCode>,
        state: impl IntoIterator<Item = ValueMember>,
    ) -> Result<TypeCode, TypeCodeError> {
        with_state(TypeCodeKind::Value, id, name, modifier, base, state)
    }

    /// Creates an event type, a value type of the component model (`create_event_tc`).
    ///
    /// # Errors
    /// The errors of [`value`](TypeCode::value).
    pub fn event(
        id: &str,
        name: &str,
        modifier: i16,
        base: Option<TypeCode>,
        state: impl IntoIterator<Item = ValueMember>,
    ) -> Result<TypeCode, TypeCodeError> {
        with_state(TypeCodeKind::Event, id, name, modifier, base, state)
    }

    /// Creates a boxed value.
    ///
    /// # Errors
    /// [`TypeCodeError::InvalidName`]; [`TypeCodeError::InvalidRepositoryId`];
    /// [`TypeCodeError::IllegitimateMember`] if `of` is not the type of a value, such as void.
    pub fn value_box(id: &str, name: &str, of: TypeCode) -> Result<TypeCode, TypeCodeError> {
        let content = Some(child(of)?);
        Ok(finish(Node { content, ..named(TypeCodeKind::ValueBox, id, name)? }))
    }

    /// Creates a placeholder for the type with this repository id, for use inside the definition of
    /// that type. The creation of the type replaces the placeholder.
    ///
    /// ```
    /// use corelane_wire::typecode::TypeCode;
    /// let next = TypeCode::sequence(TypeCode::recursive("IDL:Node:1.0"), 1)?;
    /// let node = TypeCode::structure("IDL:Node:1.0", "Node", [("next", next)])?;
    /// let again = node.member_type(0).and_then(|next| next.content_type());
    /// assert_eq!(again, Some(node));
    /// # Ok::<(), corelane_wire::typecode::TypeCodeError>(())
    /// ```
    #[must_use]
    pub fn recursive(id: &str) -> TypeCode {
        TypeCode(TypeCodeRepr::Placeholder(id.into()))
    }

    /// Returns the type without the names of members and types, except the names of aliases
    /// (`get_compact_typecode`).
    #[must_use]
    pub fn compact(&self) -> TypeCode {
        let mut copy =
            GraphCopy { nodes: Vec::new(), places: HashMap::new(), own: None, compact: true, incomplete: false };
        match copy.view(self.view()) {
            Child::SameGraph(index) => {
                TypeCode(TypeCodeRepr::Graph(Arc::new(Graph { nodes: copy.nodes, incomplete: copy.incomplete }), index))
            }
            Child::OtherGraph(type_code) => type_code,
            Child::Placeholder(_) => self.clone(),
        }
    }

    fn simple(node: Node) -> TypeCode {
        TypeCode(TypeCodeRepr::Graph(Arc::new(Graph { nodes: vec![node], incomplete: false }), 0))
    }
}

fn with_state(
    kind: TypeCodeKind,
    id: &str,
    name: &str,
    modifier: i16,
    base: Option<TypeCode>,
    state: impl IntoIterator<Item = ValueMember>,
) -> Result<TypeCode, TypeCodeError> {
    let mut names = MemberNames::default();
    let mut members = Vec::new();
    for member in state {
        names.add(&member.name)?;
        let visibility = i16::from(member.is_public);
        members.push(NodeMember { name: member.name.into(), ty: child(member.ty)?, label: 0, visibility });
    }
    if base.as_ref().is_some_and(|base| !matches!(base.unaliased().kind(), TypeCodeKind::Value | TypeCodeKind::Event)) {
        return Err(TypeCodeError::IllegitimateMember);
    }
    let content = base.map(child).transpose()?;
    Ok(finish(Node { modifier, content, members, ..named(kind, id, name)? }))
}

#[derive(Default)]
struct MemberNames(HashSet<String>);

impl MemberNames {
    fn add(&mut self, name: &str) -> Result<(), TypeCodeError> {
        let new = is_identifier(name) && self.0.insert(name.to_ascii_lowercase());
        if new { Ok(()) } else { Err(TypeCodeError::InvalidMemberName) }
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_')
}

fn named(kind: TypeCodeKind, id: &str, name: &str) -> Result<Node, TypeCodeError> {
    if !name.is_empty() && !is_identifier(name) {
        return Err(TypeCodeError::InvalidName);
    }
    if !id.contains(':') {
        return Err(TypeCodeError::InvalidRepositoryId);
    }
    Ok(Node { id: id.into(), name: name.into(), ..Node::new(kind) })
}

fn plain_members<N: AsRef<str>>(
    members: impl IntoIterator<Item = (N, TypeCode)>,
) -> Result<Vec<NodeMember>, TypeCodeError> {
    let mut names = MemberNames::default();
    let members = members.into_iter().map(|(name, ty)| {
        names.add(name.as_ref())?;
        Ok(NodeMember { name: name.as_ref().into(), ty: child(ty)?, label: 0, visibility: 0 })
    });
    members.collect()
}

fn child(part: TypeCode) -> Result<Child, TypeCodeError> {
    match part {
        TypeCode(TypeCodeRepr::Placeholder(id)) => Ok(Child::Placeholder((&*id).into())),
        part if part.kind().can_be_member() => Ok(Child::OtherGraph(part)),
        _ => Err(TypeCodeError::IllegitimateMember),
    }
}

pub(crate) fn label_fits(discriminator: View<'_>, label: i128) -> bool {
    let (least, most) = match discriminator.kind() {
        TypeCodeKind::Short => (i128::from(i16::MIN), i128::from(i16::MAX)),
        TypeCodeKind::Long => (i128::from(i32::MIN), i128::from(i32::MAX)),
        TypeCodeKind::LongLong => (i128::from(i64::MIN), i128::from(i64::MAX)),
        TypeCodeKind::UShort | TypeCodeKind::WChar => (0, i128::from(u16::MAX)),
        TypeCodeKind::ULong => (0, i128::from(u32::MAX)),
        TypeCodeKind::ULongLong => (0, i128::from(u64::MAX)),
        TypeCodeKind::Boolean => (0, 1),
        TypeCodeKind::Char | TypeCodeKind::Octet => (0, 255),
        TypeCodeKind::Enum => (0, i128::try_from(discriminator.member_count()).unwrap_or(0) - 1),
        _ => (1, 0),
    };
    (least..=most).contains(&label)
}

/// Creates the type of a node. Parts that contain placeholders are copied, because their graphs are
/// immutable.
fn finish(node: Node) -> TypeCode {
    let parts = || node.members.iter().map(|member| &member.ty).chain(&node.content);
    let incomplete = |part: &Child| match part {
        Child::OtherGraph(part) => !part.is_complete(),
        _ => true,
    };
    if !parts().any(incomplete) {
        return TypeCode::simple(node);
    }
    let own = node.kind.has_id().then(|| node.id.clone());
    let mut copy =
        GraphCopy { nodes: vec![node.clone()], places: HashMap::new(), own, compact: false, incomplete: false };
    let mut first = node;
    copy.parts(&mut first);
    let GraphCopy { mut nodes, incomplete, .. } = copy;
    if let Some(place) = nodes.first_mut() {
        *place = first;
    }
    TypeCode(TypeCodeRepr::Graph(Arc::new(Graph { nodes, incomplete }), 0))
}

struct GraphCopy {
    nodes: Vec<Node>,
    places: HashMap<usize, u32>,
    own: Option<Box<str>>,
    /// True to copy all parts without names; false to copy only parts that contain placeholders.
    compact: bool,
    incomplete: bool,
}

impl GraphCopy {
    fn parts(&mut self, node: &mut Node) {
        let members = node.members.iter_mut().map(|member| &mut member.ty);
        for part in members.chain(&mut node.content) {
            *part = match &*part {
                Child::OtherGraph(type_code) => self.there(type_code),
                Child::Placeholder(id) => self.announced(id),
                Child::SameGraph(_) => continue,
            };
        }
    }

    fn announced(&mut self, id: &str) -> Child {
        if self.own.as_deref() == Some(id) {
            return Child::SameGraph(0);
        }
        self.incomplete = true;
        Child::Placeholder(id.into())
    }

    fn there(&mut self, type_code: &TypeCode) -> Child {
        match &type_code.0 {
            TypeCodeRepr::Placeholder(id) => self.announced(id),
            _ if !self.compact && type_code.is_complete() => Child::OtherGraph(type_code.clone()),
            _ => self.view(type_code.view()),
        }
    }

    fn view(&mut self, view: View<'_>) -> Child {
        if view.kind().is_basic() {
            return Child::OtherGraph(view.to_type_code());
        }
        if let Some(place) = self.places.get(&view.key()) {
            return Child::SameGraph(*place);
        }
        let place = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.places.insert(view.key(), place);
        self.nodes.push(Node::new(view.kind()));
        let keep_name = !self.compact;
        let mut node = Node {
            kind: view.kind(),
            id: view.id().into(),
            name: if keep_name || view.kind() == TypeCodeKind::Alias { view.name().into() } else { Box::default() },
            length: view.length(),
            scale: view.scale(),
            modifier: view.modifier(),
            default: view.default(),
            content: None,
            members: Vec::new(),
        };
        if let View::Graph(graph, original, _) = view {
            // Views do not show placeholders, so the copy is made from the graph itself.
            node.content = original.content.as_ref().map(|part| self.original(graph, part));
            for member in &original.members {
                let name = if keep_name { member.name.clone() } else { Box::default() };
                let ty = self.original(graph, &member.ty);
                node.members.push(NodeMember { name, ty, label: member.label, visibility: member.visibility });
            }
        } else {
            node.content = view.content().map(|content| self.view(content));
            for member in view.members() {
                let name = if keep_name { member.name.into() } else { Box::default() };
                let ty = self.view(member.ty);
                node.members.push(NodeMember { name, ty, label: member.label, visibility: member.visibility });
            }
        }
        if let Some(slot) = self.nodes.get_mut(place as usize) {
            *slot = node;
        }
        Child::SameGraph(place)
    }

    fn original(&mut self, graph: &Arc<Graph>, part: &Child) -> Child {
        match part {
            Child::SameGraph(index) => self.view(TypeCode(TypeCodeRepr::Graph(Arc::clone(graph), *index)).view()),
            Child::OtherGraph(type_code) => self.there(type_code),
            Child::Placeholder(id) => self.announced(id),
        }
    }
}
