//! where versions are kept: a URL becomes a place to write files to and fetch them from
