//! Small matrices on the host, in 64 bits.

/// A matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matrix {
    values: Vec<f64>,
    n_columns: usize,
}

impl Matrix {
    pub fn new(values: Vec<f64>, n_columns: usize) -> Self {
        Self { values, n_columns }
    }

    pub fn zeros(n_rows: usize, n_columns: usize) -> Self {
        Self { values: vec![0.0; n_rows * n_columns], n_columns }
    }

    pub fn identity(n: usize) -> Self {
        let mut matrix = Self::zeros(n, n);
        (0..n).for_each(|i| matrix.values[i * n + i] = 1.0);
        matrix
    }

    pub fn n_rows(&self) -> usize {
        self.values.len() / self.n_columns.max(1)
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.n_columns.max(1))
    }

    pub fn plus(&self, other: &Self) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a + b).collect();
        Self { values, ..*self }
    }

    pub fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    pub fn times(&self, other: &Self) -> Self {
        let mut product = Self::zeros(self.n_rows(), other.n_columns);
        for (row, out) in self.rows().zip(product.values.chunks_mut(other.n_columns.max(1))) {
            for (factor, below) in row.iter().zip(other.rows()).filter(|(factor, _)| **factor != 0.0) {
                out.iter_mut().zip(below).for_each(|(out, value)| *out += factor * value);
            }
        }
        product
    }

    pub fn transposed(&self) -> Self {
        let n_rows = self.n_rows();
        let values = (0..self.n_columns).flat_map(|j| self.rows().map(move |row| row[j])).collect();
        Self { values, n_columns: n_rows }
    }

    /// What is beyond the identity, each row as shares, and the identity: `(R − I) / S + I`, where `S` are the sums of the
    /// rows (Chefer et al. 2021, eqs. 8 and 9). A row of the identity stays one.
    pub fn normalised_beyond_identity(&self) -> Self {
        let mut matrix = self.clone();
        for (i, row) in matrix.values.chunks_mut(self.n_columns.max(1)).enumerate() {
            row[i] -= 1.0;
            let sum: f64 = row.iter().sum();
            if sum != 0.0 {
                row.iter_mut().for_each(|value| *value /= sum);
            }
            row[i] += 1.0;
        }
        matrix
    }

    pub fn mean_of_rows(&self, rows: &[usize]) -> Vec<f64> {
        let mut mean = vec![0.0; self.n_columns];
        for row in rows {
            let row = &self.values[row * self.n_columns..(row + 1) * self.n_columns];
            mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / rows.len() as f64);
        }
        mean
    }
}
