//! The service contexts that the ORB sends with a request or a reply.

use corelane_wire::giop::ServiceContext;

pub(crate) struct ContextList<'d, const N: usize> {
    list: [ServiceContext<'d>; N],
    count: usize,
}

impl<'d, const N: usize> ContextList<'d, N> {
    #[inline]
    pub(crate) fn new(contexts: [Option<ServiceContext<'d>>; N]) -> Self {
        let mut list = [ServiceContext { id: 0, data: &[] }; N];
        let mut count = 0;
        for (slot, context) in list.iter_mut().zip(contexts.into_iter().flatten()) {
            *slot = context;
            count += 1;
        }
        ContextList { list, count }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[ServiceContext<'d>] {
        self.list.get(..self.count).unwrap_or_default()
    }
}

#[inline]
pub(crate) fn context<const LEN: usize>(id: u32, data: &Option<[u8; LEN]>) -> Option<ServiceContext<'_>> {
    data.as_ref().map(|data| ServiceContext { id, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_the_contexts_with_data_in_their_order() {
        let (none, one, two) = (None::<[u8; 4]>, Some([1; 2]), Some([2; 6]));
        let list = ContextList::new([context(1, &none), context(2, &one), context(3, &none), context(4, &two)]);
        let found: Vec<_> = list.as_slice().iter().map(|context| (context.id, context.data.len())).collect();
        assert_eq!(found, [(2, 2), (4, 6)]);
        assert!(ContextList::new([context(1, &none)]).as_slice().is_empty());
    }
}
