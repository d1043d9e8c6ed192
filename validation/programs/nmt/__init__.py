"""Neural machine translation on DDL: an LSTM encoder and decoder with attention, trained by all ranks."""
