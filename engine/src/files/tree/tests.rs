//! Checks a tree as a whole.

use super::*;

impl Tree {
    /// Checks E-6 by counting.
    pub(crate) fn check_invariants(&self) {
        let mut usage = FileUsage::default();
        for node in self.nodes.values().filter(|node| !node.is_fixed) {
            usage.bytes += node.charged(node.len());
            usage.count += node.links;
        }
        // The library's writable folders are not charged.
        assert!(usage.count >= self.usage.count && usage.count <= self.usage.count + 3, "E-6");
        assert_eq!(usage.bytes, self.usage.bytes, "E-6");
        for (id, node) in &self.nodes {
            if let NodeKind::Folder { entries, .. } = &node.kind {
                for child in entries.values() {
                    let child = self.nodes.get(child).expect("names lead to nodes");
                    if let NodeKind::Folder { parent, .. } = &child.kind {
                        assert_eq!(parent, id);
                    }
                }
            }
        }
    }
}
