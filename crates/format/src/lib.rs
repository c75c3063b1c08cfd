//! the immutable on-disk format: chunks, manifests, and versions opened by mapping
