//! ISA-L and Jerasure as installed.
#![expect(unsafe_code, reason = "calls into C")]

#[cfg(feature = "isal")]
pub(crate) mod isal {
    use std::ffi::{c_int, c_uchar, c_void};

    #[link(name = "isal")]
    unsafe extern "C" {
        fn xor_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
        fn pq_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
        fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, gftbls: *mut c_uchar);
        fn ec_encode_data(
            len: c_int,
            k: c_int,
            rows: c_int,
            gftbls: *const c_uchar,
            data: *const *const c_uchar,
            coding: *const *mut c_uchar,
        );
    }

    fn array(inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Vec<*mut c_void> {
        let sources = inputs.iter().map(|s| s.as_ptr().cast_mut().cast());
        let mut all: Vec<*mut c_void> = sources.collect();
        all.extend(outputs.iter_mut().map(|t| t.as_mut_ptr().cast::<c_void>()));
        all
    }

    fn small(n: usize) -> c_int {
        c_int::try_from(n).expect("benchmarks are small")
    }

    pub(crate) fn xor(inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let mut all = array(inputs, outputs);
        // SAFETY: the array has as many slices of one length as the call says, at page boundaries.
        let failed = unsafe { xor_gen(small(all.len()), small(inputs[0].len()), all.as_mut_ptr()) };
        assert_eq!(failed, 0);
    }

    pub(crate) fn pq(inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let mut all = array(inputs, outputs);
        // SAFETY: as above.
        let failed = unsafe { pq_gen(small(all.len()), small(inputs[0].len()), all.as_mut_ptr()) };
        assert_eq!(failed, 0);
    }

    /// The tables for `rows` sums of `k` sources.
    pub(crate) fn tables(k: usize, matrix: &[u8]) -> Vec<u8> {
        let mut tables = vec![0; 32 * matrix.len()];
        // SAFETY: 32 bytes of table for each coefficient.
        unsafe {
            let rows = small(matrix.len() / k);
            ec_init_tables(small(k), rows, matrix.as_ptr(), tables.as_mut_ptr());
        }
        tables
    }

    pub(crate) fn encode(tables: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let data: Vec<*const u8> = inputs.iter().map(|s| s.as_ptr()).collect();
        let coding: Vec<*mut u8> = outputs.iter_mut().map(|t| t.as_mut_ptr()).collect();
        assert_eq!(tables.len(), 32 * data.len() * coding.len());
        // SAFETY: the tables have as many coefficients as the slices need; all slices have one length.
        unsafe {
            ec_encode_data(
                small(inputs[0].len()),
                small(data.len()),
                small(coding.len()),
                tables.as_ptr(),
                data.as_ptr(),
                coding.as_ptr(),
            );
        }
    }
}

#[cfg(feature = "jerasure")]
pub(crate) mod jerasure {
    use std::ffi::{c_char, c_int};

    #[link(name = "Jerasure")]
    unsafe extern "C" {
        fn jerasure_smart_bitmatrix_to_schedule(
            k: c_int,
            m: c_int,
            w: c_int,
            bitmatrix: *mut c_int,
        ) -> *mut *mut c_int;
        fn jerasure_free_schedule(schedule: *mut *mut c_int);
        fn jerasure_schedule_encode(
            k: c_int,
            m: c_int,
            w: c_int,
            schedule: *mut *mut c_int,
            data: *mut *mut c_char,
            coding: *mut *mut c_char,
            size: c_int,
            packet: c_int,
        );
    }

    /// A schedule from sources to targets, each an element of its own (w = 1), as Jerasure's
    /// "smart" scheduling makes it from the matrix of ones.
    pub(crate) struct Schedule {
        sources: c_int,
        targets: c_int,
        schedule: *mut *mut c_int,
    }

    impl Schedule {
        /// `matrix[t * sources + s]` is 1 where target `t` contains source `s`.
        pub(crate) fn new(sources: usize, matrix: &[u8]) -> Self {
            let mut bits: Vec<c_int> = matrix.iter().map(|&b| c_int::from(b)).collect();
            let targets = matrix.len() / sources;
            let small = |n: usize| c_int::try_from(n).expect("benchmarks are small");
            let (sources, targets) = (small(sources), small(targets));
            // SAFETY: a matrix of targets × sources ints.
            let schedule = unsafe {
                jerasure_smart_bitmatrix_to_schedule(sources, targets, 1, bits.as_mut_ptr())
            };
            assert!(!schedule.is_null());
            Self {
                sources,
                targets,
                schedule,
            }
        }

        /// `packet` divides the length of the slices.
        pub(crate) fn run(&self, packet: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
            let mut data: Vec<*mut c_char> = inputs
                .iter()
                .map(|s| s.as_ptr().cast_mut().cast())
                .collect();
            let mut coding: Vec<*mut c_char> =
                outputs.iter_mut().map(|t| t.as_mut_ptr().cast()).collect();
            let small = |n: usize| c_int::try_from(n).expect("benchmarks are small");
            assert_eq!(
                (small(data.len()), small(coding.len())),
                (self.sources, self.targets)
            );
            // SAFETY: as many slices of one length as the schedule was made for; the sources are
            // only read.
            unsafe {
                jerasure_schedule_encode(
                    self.sources,
                    self.targets,
                    1,
                    self.schedule,
                    data.as_mut_ptr(),
                    coding.as_mut_ptr(),
                    small(inputs[0].len()),
                    small(packet),
                );
            }
        }
    }

    impl Drop for Schedule {
        fn drop(&mut self) {
            // SAFETY: made by the constructor, freed once.
            unsafe { jerasure_free_schedule(self.schedule) };
        }
    }
}
