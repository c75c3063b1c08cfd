//! A manifest, as the bytes are and with the right checksum around them.

#![no_main]

use fondaco_format::{Checksum, ChunkEntry, FORMAT_VERSION, Manifest};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Ok((manifest, identity)) = Manifest::identified(bytes) else {
        return;
    };
    assert_eq!(Manifest::identity(bytes).expect("as before"), identity);
    let of_chunk = |chunk: &ChunkEntry| 2 + chunk.further.len();
    let files: usize = manifest.chunks.iter().map(of_chunk).sum();
    let files = files + usize::from(manifest.dictionary.is_some());
    assert_eq!(manifest.files().count(), files);
    let _ = manifest.files_bytes();
    if manifest.format_version != FORMAT_VERSION {
        // It is read, but never written.
        return;
    }
    let again = Manifest::from_bytes(&manifest.to_bytes()).expect("what was written");
    assert_eq!(again, manifest);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The checksum covers the inner value as it is written, without the blanks around it.
    let inner = bytes.trim_ascii();
    let mut sealed = b"{\"manifest\": ".to_vec();
    sealed.extend_from_slice(inner);
    sealed.extend_from_slice(format!(",\"checksum\": \"{}\"}}", Checksum::of(inner)).as_bytes());
    check(&sealed);
});
