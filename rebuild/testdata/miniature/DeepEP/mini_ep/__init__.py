from mini_ep_c import built_with
