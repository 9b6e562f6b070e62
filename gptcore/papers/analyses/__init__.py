"""What analyses alone compare with: the LSTM of GPT-1's Table 5, and tables that papers print of such comparisons."""
